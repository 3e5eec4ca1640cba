// AnswerDelta: a piece of an answer that is split into reasoning, content and tool calls.
//
// Threads: plain value.
#pragma once

#include <cstdint>
#include <string>

namespace strata {

struct AnswerDelta {
  enum class Kind : uint8_t {
    reasoning = 0,
    content = 1,
    call = 2,       // a new call: text is the function's name
    arguments = 3,  // more of the arguments of the call `index`
  };
  Kind kind = Kind::content;
  std::string text;
  int32_t index = 0;  // of the call, from 0

  bool operator==(const AnswerDelta&) const = default;
};

}  // namespace strata
