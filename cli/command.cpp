#include "cli/command.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace strata::cli {

void add_json_option(CLI::App& command, CommandContext& context) {
  command.add_flag("--json", context.json,
                   "Print JSON on standard output, errors on standard error");
}

void add_example(CLI::App& command, const std::string& example) {
  command.footer("Example:\n  " + example);
}

int report_error(const Status& status, bool json) {
  if (json) {
    nlohmann::json error = {{"code", status_code_name(status.code())},
                            {"message", status.message()}};
    if (!status.hint().empty()) error["hint"] = status.hint();
    const nlohmann::json object = {{"error", error}};
    const std::string text = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    fmt::print(stderr, "{}\n", text);
  } else {
    fmt::print(stderr, "error: {}\n", status.message());
    if (!status.hint().empty()) fmt::print(stderr, "hint: {}\n", status.hint());
  }
  return exit_error;
}

}  // namespace strata::cli
