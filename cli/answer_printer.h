// AnswerPrinter: shows an answer on standard output as it comes: content as it is, reasoning pale,
// each call as a line of its own, "get_weather({"city": "Paris"})".
//
// Threads: externally synchronised; one per answer.
#pragma once

#include <string>
#include <string_view>

#include "cli/terminal.h"
#include "cli/tool_options.h"
#include "runtime/text/answer/answer_delta.h"

namespace strata::cli {

class AnswerPrinter {
 public:
  AnswerPrinter(Terminal& terminal, ShowReasoning reasoning);

  void take(const AnswerDelta& delta);
  // Ends what is open; afterwards the cursor stands at the beginning of a line if something was
  // shown and `ends_line`, or a call came last.
  void finish(bool ends_line);

 private:
  void enter(AnswerDelta::Kind kind);
  void show(std::string_view text, bool is_dim = false);
  void close_call();

  Terminal& terminal_;
  const bool shows_reasoning_;
  bool has_begun_ = false;
  AnswerDelta::Kind part_ = AnswerDelta::Kind::content;  // that is being shown
  std::string arguments_;                                // of the last call
  char last_ = '\n';                                     // that was shown
};

}  // namespace strata::cli
