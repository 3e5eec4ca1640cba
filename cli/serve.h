// `strata serve`: a model of this machine behind the HTTP API and the page.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_serve_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
