// Letters and digits of ASCII: what the C library's ctype.h tells, without its locale.
//
// What other characters are, and UTF-8, is runtime/text/unicode.h's business.
//
// Threads: free functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace strata {

// For char and char32_t alike.
template <typename Char>
constexpr bool is_ascii_digit(Char c) {
  return c >= Char{'0'} && c <= Char{'9'};
}
template <typename Char>
constexpr bool is_ascii_letter(Char c) {
  return (c >= Char{'a'} && c <= Char{'z'}) || (c >= Char{'A'} && c <= Char{'Z'});
}

// White space of JSON, which is that between the tokens of most notations.
constexpr bool is_json_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// The value of a hexadecimal digit, of either case.
template <typename Char>
constexpr std::optional<uint32_t> hex_digit(Char c) {
  if (is_ascii_digit(c)) return static_cast<uint32_t>(c - Char{'0'});
  if (c >= Char{'a'} && c <= Char{'f'}) return static_cast<uint32_t>(c - Char{'a'}) + 10;
  if (c >= Char{'A'} && c <= Char{'F'}) return static_cast<uint32_t>(c - Char{'A'}) + 10;
  return std::nullopt;
}

// The number that the first `digits` characters say; nothing if there are fewer, or others among
// them. Requires: digits <= 8.
template <typename Char>
constexpr std::optional<uint32_t> parse_hex(std::basic_string_view<Char> text, size_t digits) {
  if (text.size() < digits) return std::nullopt;
  uint32_t number = 0;
  for (const Char c : text.substr(0, digits)) {
    const std::optional<uint32_t> digit = hex_digit(c);
    if (!digit) return std::nullopt;
    number = number * 16 + *digit;
  }
  return number;
}

}  // namespace strata
