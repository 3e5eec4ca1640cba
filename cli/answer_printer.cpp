#include "cli/answer_printer.h"

#include <nlohmann/json.hpp>

namespace strata::cli {
namespace {

bool is_of_call(AnswerDelta::Kind kind) {
  return kind == AnswerDelta::Kind::call || kind == AnswerDelta::Kind::arguments;
}

bool shows(ShowReasoning wanted, const Terminal& terminal) {
  if (wanted == ShowReasoning::on_terminal) return terminal.is_interactive();
  return wanted == ShowReasoning::show;
}

}  // namespace

AnswerPrinter::AnswerPrinter(Terminal& terminal, ShowReasoning reasoning)
    : terminal_(terminal), shows_reasoning_(shows(reasoning, terminal)) {}

void AnswerPrinter::show(std::string_view text, bool is_dim) {
  if (text.empty()) return;
  terminal_.stream(text, is_dim);
  last_ = text.back();
}

// One that was cut off stays open.
void AnswerPrinter::close_call() {
  if (nlohmann::json::accept(arguments_)) show(")");
}

// Parts stand on lines of their own.
void AnswerPrinter::enter(AnswerDelta::Kind kind) {
  const bool same = has_begun_ && kind != AnswerDelta::Kind::call &&
                    (kind == part_ || (is_of_call(kind) && is_of_call(part_)));
  if (same) return;
  if (has_begun_) {
    if (is_of_call(part_)) close_call();
    if (last_ != '\n') show("\n");
    if (part_ == AnswerDelta::Kind::reasoning) show("\n");
  }
  has_begun_ = true;
  part_ = kind;
}

void AnswerPrinter::take(const AnswerDelta& delta) {
  if (delta.text.empty()) return;
  if (delta.kind == AnswerDelta::Kind::reasoning && !shows_reasoning_) return;
  // White space between calls says nothing.
  if (delta.kind == AnswerDelta::Kind::content && has_begun_ && is_of_call(part_) &&
      delta.text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return;
  }
  enter(delta.kind);
  if (delta.kind == AnswerDelta::Kind::call) {
    terminal_.answer(terminal_.bold(without_controls(delta.text)));
    show("(");
    arguments_.clear();
  } else {
    if (delta.kind == AnswerDelta::Kind::arguments) arguments_ += delta.text;
    show(delta.text, delta.kind == AnswerDelta::Kind::reasoning);
  }
}

void AnswerPrinter::finish(bool ends_line) {
  if (!has_begun_) return;
  const bool in_call = is_of_call(part_);
  if (in_call) close_call();
  if ((ends_line || in_call) && last_ != '\n') show("\n");
  has_begun_ = false;
}

}  // namespace strata::cli
