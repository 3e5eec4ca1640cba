// What every subcommand of `strata` shares: registration, context and exit codes.
//
// Each subcommand is one file with one function `void add_NAME_command(CLI::App&,
// CommandContext&)`, listed in main.cpp. The function declares options and help, and sets a
// callback that stores the work with `context.run = [options] { return run_name(*options); }`, and
// with `context.check` what can be said of the options by themselves; main runs both after parsing.
#pragma once

#include <functional>
#include <string>

#include "runtime/base/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace strata::cli {

// 0 done, 1 failed, 2 used wrongly: the same for all commands.
enum ExitCode : int { exit_ok = 0, exit_error = 1, exit_usage = 2 };

struct CommandContext {
  // Whether the options make sense, before anything is opened; may be empty. Its errors mean that
  // the command was used wrongly.
  std::function<Status()> check;
  // The chosen command's work. Errors are printed by main: as "error: message" and "hint: ..." on
  // standard error, or as one JSON object when `json` is set.
  std::function<Status()> run;
  int exit_code = exit_ok;  // of a command that answers "no" without having failed
  bool json = false;        // the chosen command was asked for --json
  std::string log_level;    // empty: info, and with --json off

  std::string chosen_log_level() const {
    if (!log_level.empty()) return log_level;
    return json ? "off" : "info";
  }
};

// Adds `--json` to a command; sets context.json. `what`: what then stands on standard output.
void add_json_option(CLI::App& command, CommandContext& context, const std::string& what);
// Options that several commands take, with one text each.
CLI::Option* add_model_path_option(CLI::App& command, std::string& path);
CLI::Option* add_context_option(CLI::App& command, uint32_t& context);
CLI::Option* add_kv_type_option(CLI::App& command, std::string& kv_type);
// The example that closes a command's --help.
void add_example(CLI::App& command, const std::string& example);

// All of standard input.
std::string read_standard_input();

// Prints the error as every command does, and nothing else.
void report_error(const Status& status, bool json);

}  // namespace strata::cli
