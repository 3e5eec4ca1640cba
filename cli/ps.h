// `strata ps`: a cluster's nodes, devices, memory, stages and state.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_ps_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
