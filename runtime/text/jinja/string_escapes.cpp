#include "runtime/text/jinja/string_escapes.h"

#include <fmt/format.h>

#include <optional>

#include "runtime/base/ascii.h"
#include "runtime/text/jinja/unicode_text.h"
#include "runtime/text/unicode.h"

namespace strata::jinja {
namespace {

// The character of \x, \u or \U; `at` is behind the letter.
Result<char32_t> hex_escape(std::string_view text, size_t& at, char letter) {
  const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : 8;
  const std::optional<uint32_t> number = parse_hex(text.substr(at), digits);
  if (!number) return invalid_argument(fmt::format("the string has a cut \\{} escape", letter));
  at += digits;
  if (is_high_surrogate(*number) && text.substr(at).starts_with("\\u")) {
    const std::optional<uint32_t> low = parse_hex(text.substr(at + 2), 4);
    if (low && is_low_surrogate(*low)) {
      at += 6;
      return join_surrogates(*number, *low);
    }
  }
  if (!is_scalar_value(*number)) {
    return invalid_argument(fmt::format("the string's escape {:#x} is no character", *number));
  }
  return *number;
}

char32_t octal_escape(std::string_view text, size_t& at) {
  char32_t value = 0;
  for (int i = 0; i < 3 && at < text.size() && text[at] >= '0' && text[at] <= '7'; ++i, ++at) {
    value = value * 8 + static_cast<char32_t>(text[at] - '0');
  }
  return value;
}

}  // namespace

Result<std::string> unescape(std::string_view text) {
  constexpr std::string_view kLetters = "abfnrtv\\'\"";
  constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] != '\\' || at + 1 >= text.size()) {
      out += text[at++];
      continue;
    }
    const char letter = text[at + 1];
    const size_t known = kLetters.find(letter);
    if (known != std::string_view::npos) {
      out += kMeanings[known];
      at += 2;
    } else if (letter == '\n') {
      at += 2;
    } else if (letter >= '0' && letter <= '7') {
      ++at;
      append_code_point(octal_escape(text, at), out);
    } else if (letter == 'x' || letter == 'u' || letter == 'U') {
      at += 2;
      append_code_point(TRY(hex_escape(text, at, letter)), out);
    } else if (letter == 'N') {
      return invalid_argument("the string has a \\N escape, which is not supported");
    } else if (static_cast<uint8_t>(letter) >= 0x80) {
      // Python escapes such characters first, and then reads the two backslashes as one.
      const Character c = character_at(text, at + 1);
      const auto code = static_cast<uint32_t>(c.code_point);
      out += code <= 0xFF     ? fmt::format("\\x{:02x}", code)
             : code <= 0xFFFF ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
      at += 1 + c.length;
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace strata::jinja
