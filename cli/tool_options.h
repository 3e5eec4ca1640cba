// Tools from the command line, and what a person wants to see of an answer's parts.
#pragma once

#include <string>

#include "backends/remote/client_records.h"
#include "runtime/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace strata::cli {

// Reasoning is shown on a terminal and left out elsewhere, unless it is said.
enum class ShowReasoning : uint8_t { on_terminal, show, hide };

struct ToolOptions {
  std::string tools_path;
  std::string choice;  // empty: auto
  ShowReasoning reasoning = ShowReasoning::on_terminal;
};

// --tools, --tool-choice, --reasoning.
void add_tool_options(CLI::App& command, ToolOptions& options);

// A chat without messages yet, with the tools and the choice in it. Errors: those of the file;
// INVALID_ARGUMENT for tools or a choice that are none; those of a tool's schema, which names it.
Result<remote::ChatPrompt> read_tools(const ToolOptions& options);

// An answer is held to a grammar or to tools. Errors: INVALID_ARGUMENT for both.
Status check_together(const GrammarSpec& grammar, const remote::ChatPrompt& chat);

}  // namespace strata::cli
