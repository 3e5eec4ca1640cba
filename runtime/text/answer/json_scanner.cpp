#include "runtime/text/answer/json_scanner.h"

#include <charconv>
#include <optional>
#include <utility>

#include "runtime/base/ascii.h"

namespace strata {
namespace {

bool fits_a_double(std::string_view number) {
  double value = 0;
  return std::from_chars(number.data(), number.data() + number.size(), value).ec == std::errc{};
}

// 0: no beginning of a number, 1: a beginning, 2: a whole number.
int number_state(std::string_view text) {
  size_t at = 0;
  const auto digits = [&] {
    const size_t begin = at;
    while (at < text.size() && is_ascii_digit(text[at])) ++at;
    return at - begin;
  };
  if (at < text.size() && text[at] == '-') ++at;
  if (at == text.size()) return 1;
  if (text[at] == '0') {
    ++at;
  } else if (digits() == 0) {
    return 0;
  }
  if (at == text.size()) return 2;
  if (text[at] == '.') {
    ++at;
    if (digits() == 0) return at == text.size() ? 1 : 0;
    if (at == text.size()) return 2;
  }
  if (text[at] != 'e' && text[at] != 'E') return 0;
  ++at;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
  if (digits() == 0) return at == text.size() ? 1 : 0;
  return at == text.size() ? 2 : 0;
}

}  // namespace

JsonScanner::Step JsonScanner::end_value() {
  state_ = State::after_value;
  return stack_.empty() ? Step::done : Step::more;
}

JsonScanner::Step JsonScanner::begin_value(char byte) {
  switch (byte) {
    case '{':
    case '[':
      if (stack_.size() >= kDepthMax) return refuse();
      stack_.push_back(byte);
      state_ = byte == '{' ? State::before_first_key : State::before_first_item;
      return Step::more;
    case '"':
      is_key_ = false;
      state_ = State::in_string;
      return Step::more;
    case 't':
    case 'f':
    case 'n':
      literal_ = byte == 't' ? "true" : byte == 'f' ? "false" : "null";
      literal_bytes_ = 1;
      state_ = State::in_literal;
      return Step::more;
    default:
      if (!is_ascii_digit(byte) && byte != '-') return refuse();
      number_.assign(1, byte);
      state_ = State::in_number;
      return Step::more;
  }
}

JsonScanner::Step JsonScanner::close(char byte) {
  if (stack_.empty() || (byte == '}') != (stack_.back() == '{')) return refuse();
  stack_.pop_back();
  return end_value();
}

JsonScanner::Step JsonScanner::feed_number(char byte) {
  number_ += byte;
  if (const int state = number_state(number_);
      number_.size() <= 400 && (state == 1 || (state == 2 && fits_a_double(number_)))) {
    return Step::more;
  }
  number_.pop_back();
  if (!number_is_complete()) return refuse();
  if (stack_.empty()) {
    state_ = State::after_value;
    return Step::ended;
  }
  state_ = State::after_value;
  const Step step = feed(byte);
  if (step == Step::refused) state_ = State::in_number;
  return step;
}

bool JsonScanner::number_is_complete() const { return number_state(number_) == 2; }

JsonScanner::Step JsonScanner::feed_string(char byte) {
  if (state_ == State::in_escape) {
    if (byte == 'u') {
      unicode_digits_ = 0;
      unicode_ = 0;
      state_ = State::in_unicode;
      return Step::more;
    }
    if (expects_low_ || std::string_view("\"\\/bfnrt").find(byte) == std::string_view::npos)
      return refuse();
    state_ = State::in_string;
    return Step::more;
  }
  if (state_ == State::in_unicode) return feed_unicode(byte);
  if (byte == '\\') {
    state_ = State::in_escape;
    return Step::more;
  }
  if (expects_low_ || static_cast<unsigned char>(byte) < 0x20) return refuse();
  if (byte != '"') return Step::more;
  if (!is_key_) return end_value();
  state_ = State::after_key;
  return Step::more;
}

JsonScanner::Step JsonScanner::feed_unicode(char byte) {
  const std::optional<uint32_t> digit = hex_digit(byte);
  if (!digit) return refuse();
  const uint32_t value = unicode_ * 16 + *digit;
  // High surrogates begin with D8 to DB, low ones with DC to DF.
  if (unicode_digits_ == 0 && expects_low_ && value != 0xd) return refuse();
  if (unicode_digits_ == 1 && (value >= 0xdc && value <= 0xdf) != expects_low_) return refuse();
  unicode_ = value;
  if (++unicode_digits_ < 4) return Step::more;
  expects_low_ = value >= 0xd800 && value <= 0xdbff;
  state_ = State::in_string;
  return Step::more;
}

JsonScanner::Step JsonScanner::feed(char byte) {
  if (is_in_string()) return feed_string(byte);
  if (state_ == State::in_number) return feed_number(byte);
  if (state_ == State::in_literal) {
    if (byte != literal_[literal_bytes_]) return refuse();
    return ++literal_bytes_ == literal_.size() ? end_value() : Step::more;
  }
  if (is_json_space(byte))
    return stack_.empty() && state_ == State::after_value ? Step::ended : Step::more;
  switch (state_) {
    case State::before_value:
      return begin_value(byte);
    case State::before_first_item:
      return byte == ']' ? close(byte) : begin_value(byte);
    case State::before_first_key:
      if (byte == '}') return close(byte);
      [[fallthrough]];
    case State::before_key:
      if (byte != '"') return refuse();
      is_key_ = true;
      state_ = State::in_string;
      return Step::more;
    case State::after_key:
      if (byte != ':') return refuse();
      state_ = State::before_value;
      return Step::more;
    default:
      break;
  }
  // After a value.
  if (stack_.empty()) return Step::ended;
  if (byte != ',') return byte == '}' || byte == ']' ? close(byte) : refuse();
  state_ = stack_.back() == '{' ? State::before_key : State::before_value;
  return Step::more;
}

bool JsonScanner::is_complete() const {
  return stack_.empty() &&
         (state_ == State::after_value || (state_ == State::in_number && number_is_complete()));
}

}  // namespace strata
