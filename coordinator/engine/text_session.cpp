#include "coordinator/engine/text_session.h"

#include <utility>

namespace strata::coordinator {
namespace {

StopMatcher matcher_of(std::vector<std::string> stop) {
  std::erase_if(stop, [](const std::string& text) { return text.empty(); });
  Result<StopMatcher> matcher = StopMatcher::create(stop);
  // Too many bytes of stop strings: none of them, as who takes requests refuses those.
  return matcher.ok() ? std::move(matcher).value() : StopMatcher::create({}).value();
}

}  // namespace

TextSession::TextSession(const Tokenizer& tokenizer, int32_t last_prompt_token,
                         std::vector<std::string> stop, DecodeOptions options)
    : decoder_(tokenizer, last_prompt_token, options), stop_(matcher_of(std::move(stop))) {}

std::string TextSession::push(int32_t id) {
  if (stopped()) return {};
  return stop_.push(decoder_.push(id));
}

std::string TextSession::flush() {
  if (stopped()) return {};
  const std::string text = stop_.push(decoder_.flush());
  return stopped() ? text : text + stop_.flush();
}

}  // namespace strata::coordinator
