#include "runtime/grammar/key_tracker.h"

#include <algorithm>

#include "runtime/base/ascii.h"
#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

// What a JSON string says. Requires: well-formed.
std::string unescape(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      result += text[i];
      continue;
    }
    const char letter = text[++i];
    constexpr std::string_view kLetters = "bfnrt";
    constexpr std::string_view kMeanings = "\b\f\n\r\t";
    const size_t known = kLetters.find(letter);
    if (letter != 'u') {
      result += known == std::string_view::npos ? letter : kMeanings[known];
      continue;
    }
    uint32_t code = parse_hex(text.substr(i + 1), 4).value_or(0);
    i += 4;
    if (is_high_surrogate(code) && i + 2 < text.size()) {
      code = join_surrogates(code, parse_hex(text.substr(i + 3), 4).value_or(0xDC00));
      i += 6;
    }
    append_utf8(code, result);
  }
  return result;
}

}  // namespace

KeyTracker::Levels& KeyTracker::own_levels() {
  if (levels_.use_count() > 1) levels_ = std::make_shared<Levels>(*levels_);
  return *levels_;
}

bool KeyTracker::awaits_another_name() const {
  return (in_name_ || (expects_name_ && !in_string_)) && !levels_->empty() &&
         !levels_->back().names.empty();
}

bool KeyTracker::is_known(const std::string& name) const {
  const std::vector<std::string>& names = levels_->back().names;
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool KeyTracker::accept(uint8_t byte) {
  const char c = static_cast<char>(byte);
  if (in_string_) {
    const bool ends = c == '"' && !escaped_;
    if (ends && in_name_) {
      std::string name = unescape(name_);
      if (is_known(name)) return false;
      own_levels().back().names.push_back(std::move(name));
    }
    if (!ends && in_name_) name_ += c;
    escaped_ = c == '\\' && !escaped_;
    if (!ends) return true;
    in_string_ = false;
    in_name_ = false;
    name_.clear();
    return true;
  }
  switch (c) {
    case '"':
      in_string_ = true;
      in_name_ = expects_name_;
      expects_name_ = false;
      break;
    case '{':
    case '[':
      own_levels().push_back({c == '{', {}});
      expects_name_ = c == '{';
      break;
    case '}':
    case ']':
      if (!levels_->empty()) own_levels().pop_back();
      expects_name_ = false;
      break;
    case ',':
      expects_name_ = !levels_->empty() && levels_->back().is_object;
      break;
    default:
      break;
  }
  return true;
}

}  // namespace strata::grammar
