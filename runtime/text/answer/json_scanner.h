// JsonScanner: reads one JSON value byte by byte, and refuses the first byte that no JSON has
// there. Stricter than RFC 8259 in what its readers disagree on: numbers are within a double's
// range, surrogates come in pairs.
//
// Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

class JsonScanner {
 public:
  // Deeper values are refused.
  static constexpr size_t kDepthMax = 200;

  enum class Step : uint8_t {
    more,     // the byte belongs to the value
    done,     // the byte belongs to it and ends it
    ended,    // the value, a number, had ended before this byte, which is not taken
    refused,  // the byte cannot stand here; the state is as before
  };
  Step feed(char byte);

  // The value is complete, or would be if nothing followed (a number at the top).
  bool is_complete() const;

  // Objects and lists that are open.
  size_t depth() const { return stack_.size(); }
  // Where the next byte stands.
  bool is_before_value() const { return state_ == State::before_value; }
  bool is_after_value() const { return state_ == State::after_value; }
  bool is_in_number() const { return state_ == State::in_number; }
  bool is_in_string() const { return state_ >= State::in_string; }
  bool is_in_key() const { return is_in_string() && is_key_; }

 private:
  enum class State : uint8_t {
    before_value,
    before_first_key,
    before_first_item,
    before_key,
    after_key,
    after_value,
    in_literal,
    in_number,
    in_string,  // this and the following: inside a string
    in_escape,
    in_unicode,
  };

  Step begin_value(char byte);
  Step feed_number(char byte);
  Step feed_string(char byte);
  Step feed_unicode(char byte);
  Step close(char byte);
  Step end_value();
  Step refuse() const { return Step::refused; }
  bool number_is_complete() const;

  std::vector<char> stack_;  // '{' and '['
  State state_ = State::before_value;
  bool is_key_ = false;       // the string being read is a key
  std::string_view literal_;  // true, false or null
  size_t literal_bytes_ = 0;  // of which are read
  std::string number_;
  int unicode_digits_ = 0;
  uint32_t unicode_ = 0;      // their value so far
  bool expects_low_ = false;  // a high surrogate was read, and the low one not yet whole
};

}  // namespace strata
