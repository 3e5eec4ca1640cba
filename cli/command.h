// What every subcommand of `strata` shares: registration, context and exit codes.
//
// Each subcommand is one file with one function `void add_NAME_command(CLI::App&,
// CommandContext&)`, listed in main.cpp. The function declares options and help, and sets a
// callback that stores the outcome with `context.run = [options] { return run_name(*options); }`;
// main runs it after parsing.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "runtime/base/status.h"

namespace strata::cli {

// 0 done, 1 failed, 2 used wrongly: the same for all commands.
enum ExitCode : int { exit_ok = 0, exit_error = 1, exit_usage = 2 };

struct CommandContext {
  // The chosen command's work. Errors are printed by main: as "error: message" and "hint: ..." on
  // standard error, or as one JSON object when `json` is set.
  std::function<Status()> run;
  bool json = false;  // the chosen command was asked for --json
  std::string log_level = "info";
};

// Adds `--json` to a command; sets context.json.
void add_json_option(CLI::App& command, CommandContext& context);
// The example that closes a command's --help.
void add_example(CLI::App& command, const std::string& example);

// Prints the error as every command does and returns the exit code for it: exit_usage for
// INVALID_ARGUMENT raised while reading options, exit_error else.
int report_error(const Status& status, bool json);

}  // namespace strata::cli
