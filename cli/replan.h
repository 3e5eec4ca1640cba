// `strata replan`: has a cluster's model placed anew, over the workers that are there now.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_replan_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
