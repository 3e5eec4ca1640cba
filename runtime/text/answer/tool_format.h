// How a model writes reasoning and tool calls, read off its chat template.
//
// A family's template shows earlier calls to the model in the very form in which the model writes
// new ones, so the form is recognised by the markers in the template's source.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/chat_template.h"

namespace strata {

enum class CallSyntax : uint8_t {
  json_bare,    // {"name": ..., "parameters": {...}} as the whole answer: Llama 3, and any other
  json_marked,  // the same between markers, one or a list: Hermes, Qwen, Granite, Phi 4
  mistral,      // [TOOL_CALLS] and a list, or NAME[ARGS]{...}
  deepseek,     // NAME and JSON between the family's own markers
  xml,          // <function=NAME><parameter=KEY>VALUE</parameter></function>: Qwen Coder
  channels,     // gpt-oss: a header with channel and recipient before each message
};

struct ToolFormat {
  CallSyntax syntax = CallSyntax::json_bare;
  // Of json_marked and xml: what begins and ends a call. Of the others, what begins one.
  std::string begin;
  std::string end;
  // Where a call is a name and its arguments, not one JSON object: what stands before the name,
  // between the two, and behind. name_end is empty elsewhere.
  std::string name_begin;
  std::string name_end;
  std::string arguments_end;
  // Around reasoning; empty if the template knows none.
  std::string think_begin;
  std::string think_end;
  // The template writes the tools; else tool_prompt() has to tell the model.
  bool template_writes_tools = false;

  // Control tokens that the parser has to see in the text.
  std::vector<std::string> markers() const;
};

ToolFormat tool_format_of(const ChatTemplate& chat);
// Of a template's source alone; `takes_tools`: it writes the tools it is given.
ToolFormat tool_format_of(std::string_view source, bool takes_tools);

// True if the prompt ends inside of reasoning, because the template opened it.
bool prompt_opens_reasoning(const ToolFormat& format, std::string_view prompt);

// What a system message says to a model whose template knows no tools.
// Requires: a JSON list of OpenAI's tools.
std::string tool_prompt(std::string_view tools_json);

}  // namespace strata
