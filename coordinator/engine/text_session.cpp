#include "coordinator/engine/text_session.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace strata::coordinator {
namespace {

// Bytes at the end of `text` that are the beginning of `stop`, short of all of it.
size_t begun(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.substr(text.size() - length) == stop.substr(0, length)) return length;
  }
  return 0;
}

}  // namespace

TextSession::TextSession(const Tokenizer& tokenizer, int32_t last_prompt_token,
                         std::vector<std::string> stop)
    : decoder_(tokenizer, last_prompt_token), stop_(std::move(stop)) {
  std::erase_if(stop_, [](const std::string& text) { return text.empty(); });
}

std::string TextSession::push(int32_t id) {
  if (stopped_) return {};
  return release(decoder_.push(id), false);
}

std::string TextSession::flush() {
  if (stopped_) return {};
  return release(decoder_.flush(), true);
}

std::string TextSession::release(std::string text, bool at_end) {
  held_ += text;
  size_t cut = std::string::npos;
  size_t hold = 0;
  for (const std::string& stop : stop_) {
    cut = std::min(cut, held_.find(stop));
    hold = std::max(hold, begun(held_, stop));
  }
  if (cut != std::string::npos) {
    stopped_ = true;
    held_.resize(cut);
    return std::exchange(held_, {});
  }
  if (at_end) hold = 0;
  std::string certain = held_.substr(0, held_.size() - hold);
  held_.erase(0, certain.size());
  return certain;
}

}  // namespace strata::coordinator
