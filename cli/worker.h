// `strata worker`: joins a coordinator, holds a stage of its model and runs it until it is ended.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_worker_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
