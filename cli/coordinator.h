// `strata coordinator`: owns a model, places it on the workers that join, and serves clients.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_coordinator_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
