// `strata bench`: prompt and generation speed, in one process or over local worker processes.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_bench_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
