// `strata plan`: what would be placed where, and how fast it would be; nothing is loaded.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_plan_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
