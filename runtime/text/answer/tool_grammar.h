// What a request's tools and tool_choice allow the model to write, as a composed grammar
// (runtime/grammar/composed.h) for its whole answer.
//
//   required, one    (reasoning) calls
//   auto             (reasoning) words, and wherever the family's marker of a call comes: a call
//
// Arguments fit the tool's own schema; a name is one of the tools'. Where nothing but the beginning
// of an answer tells a call from words (CallSyntax::json_bare), an answer that begins as a call of
// a known tool goes on as one.
//
// Threads: any.
#pragma once

#include <string>
#include <vector>

#include "runtime/text/answer/tool_format.h"
#include "runtime/text/answer/tools.h"

namespace strata {

// Empty where anything may be written: no tools, or tool_choice "none". `starts_in_reasoning`: see
// prompt_opens_reasoning().
std::string tool_grammar(const ToolFormat& format, const std::vector<Tool>& tools,
                         const ToolChoice& choice, bool starts_in_reasoning);

}  // namespace strata
