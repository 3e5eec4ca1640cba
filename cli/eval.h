// `strata eval`: what a model's logits are for given tokens, on a chosen path.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_eval_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
