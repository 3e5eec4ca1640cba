#include "cli/model_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <fstream>

#include "backends/backends.h"
#include "backends/cpu/isa.h"
#include "cli/command.h"
#include "coordinator/planner/planner.h"
#include "runtime/base/thread_pool.h"
#include "worker/local_pipeline.h"

namespace strata::cli {

void add_model_options(CLI::App& command, ModelOptions& options, const std::string& kv_type) {
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

Result<ThreadPins> pins_of(const ModelOptions& options, size_t pools) {
  return choose_pins({.mode = TRY(parse_pin_mode(options.pin).with_context("--pin")),
                      .threads = options.threads > 0 ? options.threads : usable_core_count(),
                      .pools = static_cast<int>(pools)});
}

Status check_model_options(const ModelOptions& options) {
  TRY(parse_kv_type(options.kv_type));
  TRY(parse_pin_mode(options.pin).with_context("--pin"));
  if (options.split) TRY(coordinator::parse_split(*options.split));
  // A name that is none; what this processor lacks is no wrong use.
  const Status isa = cpu::choose_isa(options.isa).status();
  return isa.code() == StatusCode::invalid_argument ? isa : ok_status();
}

Result<std::unique_ptr<DeviceRegistry>> open_devices(const ModelOptions& options) {
  auto registry = std::make_unique<DeviceRegistry>();
  TRY(register_all(*registry, {.isa = options.isa}));
  return registry;
}

Result<std::vector<LayerRange>> stage_ranges(const ModelOptions& options, const Hparams& hparams) {
  if (!options.split) {
    return std::vector<LayerRange>{
        {.begin = 0, .end = hparams.n_layer, .has_embedding = true, .has_head = true}};
  }
  std::vector<int32_t> counts;
  for (const coordinator::SplitEntry& entry :
       TRY(coordinator::parse_split(*options.split, static_cast<uint32_t>(hparams.n_layer)))) {
    if (!entry.node.empty()) {
      return invalid_argument(
          fmt::format("--split {}: stages in one process have no names", *options.split),
          "give layers alone, such as 10,12,8");
    }
    counts.push_back(static_cast<int32_t>(entry.layers));
  }
  return worker::split_layers(hparams.n_layer, counts);
}

Result<DType> parse_kv_type(const std::string& name) {
  return kv_type_from_name(name).with_context("--kv-type");
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
