#include "cli/model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <fstream>

#include "cli/command.h"

namespace strata::cli {

void add_model_options(CLI::App& command, serve::ModelOptions& options,
                       const std::string& kv_type) {
  options.kv_type = kv_type;
  add_model_path_option(command, options.path)->required();
  add_kv_type_option(command, options.kv_type);
  command
      .add_option("--split", options.split,
                  "Layers of each stage, such as 10,12,8; a last 0 is the output head alone "
                  "(default: one stage, or as the plan balances --workers)")
      ->type_name("LAYERS")
      ->group("Model");
  command
      .add_flag("--mapped", options.mapped,
                "Compute from the mapped file, without a copy: slower, and the memory is the "
                "system's to take back")
      ->group("Model");
  command
      .add_option("--threads", options.threads,
                  "Threads that compute; 0: one for each core (default 0)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N")
      ->group("Processor");
  add_pin_option(command, options.pin);
  command
      .add_option("--isa", options.isa,
                  "Vector path: scalar, avx2 or avx512; equal results on each (default: the best "
                  "here)")
      ->type_name("PATH")
      ->group("Processor");
}

void add_pin_option(CLI::App& command, std::string& pin) {
  command
      .add_option("--pin", pin,
                  "Hold each computing thread to a processor of its own: auto, on or off; auto "
                  "does where no other process may run (default auto)")
      ->type_name("MODE")
      ->group("Processor");
}

Result<std::string> read_text_file(const std::string& path) {
  constexpr size_t kTextBytesMax = size_t{1} << 30;
  std::ifstream in(path, std::ios::binary);
  if (!in) return not_found("cannot read " + path);
  std::string text;
  std::array<char, 65536> piece;
  while (in.read(piece.data(), piece.size()), in.gcount() > 0) {
    text.append(piece.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > kTextBytesMax) return invalid_argument(path + ": larger than 1 GiB");
  }
  return text;
}

}  // namespace strata::cli
