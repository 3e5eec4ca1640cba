// `strata template`: shows the text that a conversation becomes.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_template_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
