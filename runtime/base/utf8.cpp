#include "runtime/base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace strata {
namespace {

// The length of the well-formed character at the start of `text`, or 0 if there is none.
size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  size_t length = 0;
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) second_min = 0xA0;
    if (first == 0xED) second_max = 0x9F;  // surrogates
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) second_min = 0x90;
    if (first == 0xF4) second_max = 0x8F;  // over U+10FFFF
  }
  if (length == 0 || text.size() < length) return 0;
  if (byte(1) < second_min || byte(1) > second_max) return 0;
  for (size_t i = 2; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

bool is_control(char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7F; }

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = character_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool has_control_character(std::string_view text) {
  return std::any_of(text.begin(), text.end(), is_control);
}

std::string printable(std::string_view text, size_t bytes_max) {
  std::string shown;
  size_t used = 0;
  while (!text.empty()) {
    const size_t length = character_length(text);
    const size_t step = std::max<size_t>(length, 1);
    if (used + step > bytes_max) return shown + "...";
    const char first = text[0];
    // U+0080 to U+009F are control characters too: terminals obey them.
    const bool high_control =
        length == 2 && first == '\xC2' && static_cast<uint8_t>(text[1]) < 0xA0;
    if (first == '\n') {
      shown += "\\n";
    } else if (first == '\t') {
      shown += "\\t";
    } else if (first == '\r') {
      shown += "\\r";
    } else if (length == 0 || is_control(first) || high_control) {
      for (const char c : text.substr(0, step)) {
        shown += fmt::format("\\x{:02x}", static_cast<uint8_t>(c));
      }
    } else {
      shown += text.substr(0, step);
    }
    used += step;
    text.remove_prefix(step);
  }
  return shown;
}

}  // namespace strata
