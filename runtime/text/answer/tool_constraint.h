// What a request's tools and tool_choice allow the model to write, as input for constrained
// decoding: a schema for a call, and from where on it applies.
//
// The grammar itself is not made here; who has a grammar compiler hands the schema to it.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/answer/answer_parser.h"
#include "runtime/text/answer/tool_format.h"

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

struct ToolConstraint {
  // The answer has to be a call from its first token on (after reasoning, if there is some).
  bool from_start = false;
  // Else: where the model writes this, the rest up to `end` has to be a call. Empty: no constraint.
  std::string trigger;
  std::string end;
  // JSON Schema of what stands between; empty where the family writes no JSON object for a call
  // (then only the arguments are JSON, see argument_schemas).
  std::string call_schema;
  // The schema of each tool's arguments, in the order of the tools.
  std::vector<std::string> argument_schemas;
};

ToolConstraint tool_constraint(const ToolFormat& format, const std::vector<Tool>& tools,
                               const ToolChoice& choice);

// The parser's options for such a request.
AnswerOptions answer_options(const std::vector<Tool>& tools, const ToolChoice& choice);

}  // namespace strata
