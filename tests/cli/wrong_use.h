// Goal: `run` and `chat` refuse wrong uses alike, before the model's file is looked at.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/support/command_run.h"

namespace strata::test {

// Options, and what the error has to say of them.
using WrongUse = std::pair<std::vector<std::string>, std::string>;

inline void expect_wrong_uses(const std::vector<WrongUse>& cases) {
  for (const auto& [options, message] : cases) {
    for (const char* command : {"run", "chat"}) {
      std::vector<std::string> arguments = {std::string(STRATA_BINARY_DIR) + "/strata", command,
                                            "-m", "/nowhere/none.gguf"};
      if (arguments[1] == "run") arguments.insert(arguments.end(), {"-p", "x"});
      arguments.insert(arguments.end(), options.begin(), options.end());
      const CommandResult result = run_command(arguments);
      EXPECT_EQ(result.exit_code, 2) << result.err;
      EXPECT_THAT(result.err, testing::HasSubstr(message));
      EXPECT_THAT(result.err, testing::Not(testing::HasSubstr("none.gguf")));
    }
  }
}

}  // namespace strata::test
