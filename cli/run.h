// `strata run`: one answer to one prompt.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_run_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
