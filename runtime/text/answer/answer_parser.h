// AnswerParser: a model's text, as it streams in, into reasoning, content and tool calls.
//
// However the text is cut into pieces, the deltas of one kind joined are the same. Arguments are
// passed on as they come, and joined they are one JSON value. Where the model breaks off or spoils
// it, they end there: nothing is put in that the model did not write. Text that only looked like a
// call comes back as content.
//
// Threads: externally synchronised; one per answer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/answer/answer_delta.h"
#include "runtime/text/answer/tool_format.h"

namespace strata {

struct AnswerOptions {
  // False: tool_choice "none", or no tools. Calls are then content.
  bool parse_calls = false;
  // Names of the tools. Where nothing but a name tells a call from a JSON answer, only these count.
  std::vector<std::string> tool_names;
  // Parameters of a tool that are no strings by its schema, as "tool.parameter": for xml.
  std::vector<std::string> parsed_parameters;
  // False: reasoning is left in the content, as the model writes it.
  bool split_reasoning = true;
  // The prompt ended inside of reasoning, see prompt_opens_reasoning().
  bool starts_in_reasoning = false;
};

class AnswerParser {
 public:
  AnswerParser(ToolFormat format, AnswerOptions options);
  ~AnswerParser();

  // The deltas that are certain now; neighbours of one kind are joined.
  std::vector<AnswerDelta> push(std::string_view text);
  // The rest, at the end of the answer.
  std::vector<AnswerDelta> finish();

  // Calls that were begun.
  int32_t calls() const;
  // There are some, and the last one is whole: the finish reason is then "tool_calls".
  bool ends_with_calls() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace strata
