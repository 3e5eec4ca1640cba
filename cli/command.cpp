#include "cli/command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli/json_line.h"

namespace strata::cli {

void add_json_option(CLI::App& command, CommandContext& context, const std::string& what) {
  command
      .add_flag("--json", context.json,
                what + ". An error is one JSON object on standard error, where nothing else stands")
      ->group("Output");
  command.get_help_ptr()->group("Output");
}

CLI::Option* add_model_path_option(CLI::App& command, std::string& path) {
  return command
      .add_option("-m,--model", path, "GGUF file, or the first file of a split model (-00001-of-N)")
      ->type_name("FILE")
      ->group("Model");
}

CLI::Option* add_context_option(CLI::App& command, uint32_t& context) {
  return command
      .add_option(
          "--ctx", context,
          "Most tokens of prompt and answer together; 0: what the model was trained for, at "
          "most 4096")
      ->type_name("TOKENS")
      ->capture_default_str()
      ->group("Model");
}

CLI::Option* add_kv_type_option(CLI::App& command, std::string& kv_type) {
  return command
      .add_option("--kv-type", kv_type,
                  "Type of the KV cache: f32, f16, q8_0 or q4_0, each smaller than the one before")
      ->type_name("TYPE")
      ->capture_default_str()
      ->group("Model");
}

void add_example(CLI::App& command, const std::string& example) { command.footer(example); }

std::string read_standard_input() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void report_error(const Status& status, bool json) {
  std::string text;
  if (json) {
    nlohmann::json error = {{"code", status_code_name(status.code())},
                            {"message", status.message()}};
    if (!status.hint().empty()) error["hint"] = status.hint();
    const nlohmann::json object = {{"error", error}};
    text = json_line(object);
  } else {
    text = fmt::format("error: {}\n", status.message());
    if (!status.hint().empty()) text += fmt::format("hint: {}\n", status.hint());
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace strata::cli
