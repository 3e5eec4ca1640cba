// gpt-oss' answers: messages with a header of role, recipient and channel.
//
//   <|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>text
//   <|start|>assistant<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}
//
// Source: the Harmony format, https://github.com/openai/harmony
//
// Threads: externally synchronised.
#pragma once

#include <optional>
#include <string>

#include "runtime/text/answer/call_reader.h"
#include "runtime/text/answer/delta_sink.h"
#include "runtime/text/stop_matcher.h"

namespace strata {

class ChannelParser {
 public:
  // Without `parse_calls` a call's message is content.
  explicit ChannelParser(bool parse_calls);

  void feed(char byte, DeltaSink& sink);
  void finish(DeltaSink& sink);

 private:
  enum class Body : uint8_t { reasoning, content, call };

  void enter_header();
  void enter_body(DeltaSink& sink);
  void put(std::string_view text, DeltaSink& sink);

  bool parse_calls_;
  bool in_header_ = true;
  std::string header_;
  Body body_ = Body::content;
  std::optional<StopMatcher> matcher_;
  ArgumentsWriter writer_;
};

}  // namespace strata
