// Runs a program to its end and tells what it said on each stream, with a terminal or without.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace strata::test {

struct CommandResult {
  std::string out;
  std::string err;
  int exit_code = -1;  // -1: ended by a signal, or killed because it took too long
};

struct CommandOptions {
  std::string input = {};                     // standard input, closed after it
  std::vector<std::string> environment = {};  // "NAME=value" beside this process's own
  // Both streams on a terminal of its own, 100 columns wide; everything is in `out` then.
  bool on_terminal = false;
  std::chrono::seconds patience{60};
};

// arguments[0] is the program's path. Fails the running test if it cannot be started or takes too
// long.
CommandResult run_command(const std::vector<std::string>& arguments,
                          const CommandOptions& options = {});

}  // namespace strata::test
