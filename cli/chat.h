// `strata chat`: a conversation, turn by turn.
#pragma once

#include "cli/command.h"

namespace strata::cli {

void add_chat_command(CLI::App& app, CommandContext& context);

}  // namespace strata::cli
