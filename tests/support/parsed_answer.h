// An answer put together from the parser's deltas, as a client would.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/text/answer/answer_parser.h"

namespace strata::test {

struct ParsedAnswer {
  std::string reasoning;
  std::string content;
  std::vector<std::pair<std::string, std::string>> calls;  // name, arguments
  bool operator==(const ParsedAnswer&) const = default;
};

inline void take(const std::vector<AnswerDelta>& deltas, ParsedAnswer& answer) {
  for (const AnswerDelta& delta : deltas) {
    const auto calls = static_cast<int32_t>(answer.calls.size());
    switch (delta.kind) {
      case AnswerDelta::Kind::reasoning:
        answer.reasoning += delta.text;
        break;
      case AnswerDelta::Kind::content:
        answer.content += delta.text;
        break;
      case AnswerDelta::Kind::call:
        STRATA_CHECK(delta.index == calls, "a call out of turn");
        answer.calls.emplace_back(delta.text, "");
        break;
      case AnswerDelta::Kind::arguments:
        STRATA_CHECK(calls > 0 && delta.index == calls - 1, "arguments without their call");
        answer.calls.back().second += delta.text;
    }
  }
}

// `piece`: bytes that come at a time; 0: all at once.
inline ParsedAnswer parse_answer(const ToolFormat& format, const AnswerOptions& options,
                                 std::string_view text, size_t piece = 0) {
  AnswerParser parser(format, options);
  ParsedAnswer answer;
  if (piece == 0) piece = std::max<size_t>(text.size(), 1);
  for (size_t at = 0; at < text.size(); at += piece) {
    take(parser.push(text.substr(at, piece)), answer);
  }
  take(parser.finish(), answer);
  STRATA_CHECK(parser.calls() == static_cast<int32_t>(answer.calls.size()), "calls miscounted");
  return answer;
}

}  // namespace strata::test
