// Where the parsers of answers put what they found.
//
// Threads: externally synchronised.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/answer/answer_parser.h"

namespace strata {

class DeltaSink {
 public:
  void add(AnswerDelta::Kind kind, std::string_view text) {
    if (text.empty()) return;
    if (!deltas_.empty() && deltas_.back().kind == kind && kind != AnswerDelta::Kind::call) {
      deltas_.back().text += text;
      return;
    }
    deltas_.push_back({kind, std::string(text), calls_ - 1});
  }
  void content(std::string_view text) {
    // Space before the first word is the frame's, not the answer's.
    if (!has_content_) {
      const size_t begin = std::min(text.find_first_not_of(" \t\r\n"), text.size());
      text.remove_prefix(begin);
    }
    has_content_ |= !text.empty();
    add(AnswerDelta::Kind::content, text);
  }
  void reasoning(std::string_view text) { add(AnswerDelta::Kind::reasoning, text); }
  // Requires: a name.
  void call(std::string_view name) {
    ++calls_;
    call_is_open_ = true;
    add(AnswerDelta::Kind::call, name);
  }
  void arguments(std::string_view text) { add(AnswerDelta::Kind::arguments, text); }

  // The arguments of the last call are whole.
  void end_call() { call_is_open_ = false; }

  int32_t calls() const { return calls_; }
  bool call_is_open() const { return call_is_open_; }
  std::vector<AnswerDelta> take() { return std::exchange(deltas_, {}); }
  // Content keeps its leading space: the answer was not split at all.
  void keep_leading_space() { has_content_ = true; }

 private:
  std::vector<AnswerDelta> deltas_;
  int32_t calls_ = 0;
  bool call_is_open_ = false;
  bool has_content_ = false;
};

}  // namespace strata
