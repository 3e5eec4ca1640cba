// A request's tools and tool_choice, read and checked.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/answer/answer_parser.h"

namespace strata {

// A function of the request.
struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  // JSON Schema; "{}" where the request has none
};

struct ToolChoice {
  enum class Kind : uint8_t { none, automatic, required, one };
  Kind kind = Kind::automatic;
  std::string name;  // of the one
};

// Requires: the texts of "tools" and "tool_choice" of OpenAI's API; empty or "null" where absent.
// Errors: INVALID_ARGUMENT naming the tool, for no list, no or a doubled name, parameters that are
// no object, an unknown choice or a choice of a function that is not there.
Result<std::vector<Tool>> parse_tools(std::string_view tools_json);
Result<ToolChoice> parse_tool_choice(std::string_view choice_json, const std::vector<Tool>& tools);

// The list with each function in OpenAI's frame, {"type": "function", "function": ...}, as
// templates expect it. Requires: parse_tools() has taken it.
std::string wrapped_tools(std::string_view tools_json);

// The parser's options for such a request.
AnswerOptions answer_options(const std::vector<Tool>& tools, const ToolChoice& choice);

}  // namespace strata
