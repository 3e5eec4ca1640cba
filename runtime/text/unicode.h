// Code points in and out of UTF-8, and the few Unicode properties that tokenizers ask for.
//
// Properties come from utf8proc, classes in regular expressions from PCRE2 (pretokenizer.h).
// Threads: free functions, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

// A Unicode scalar value: what UTF-8 can spell, so no surrogate.
constexpr bool is_scalar_value(uint32_t code) {
  return code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
}
// The two halves that UTF-16 and JSON's \u spell a character beyond U+FFFF with.
constexpr bool is_high_surrogate(uint32_t code) { return code >= 0xD800 && code <= 0xDBFF; }
constexpr bool is_low_surrogate(uint32_t code) { return code >= 0xDC00 && code <= 0xDFFF; }
// Requires: one of each.
constexpr char32_t join_surrogates(uint32_t high, uint32_t low) {
  return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
}

// One character at the front of a text.
struct DecodedCharacter {
  char32_t code_point;
  size_t length;  // in bytes; 1 if not valid
  bool valid;     // false: the first byte begins no well-formed character (RFC 3629)
};

// Requires: offset < text.size().
DecodedCharacter decode_utf8(std::string_view text, size_t offset);

// The length that the first byte of a character announces: 1 to 4, and 1 for a continuation byte.
size_t announced_utf8_length(char first_byte);

// True if the text is not empty and a proper beginning of one well-formed character, so that more
// bytes may complete it.
bool may_become_utf8(std::string_view text);

// Requires: a code point up to U+10FFFF that is no surrogate.
void append_utf8(char32_t code_point, std::string& text);

// The text with each byte that is part of no well-formed character replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// The first code point of the canonical decomposition: the letter without its accents.
char32_t base_of(char32_t code_point);
char32_t lower_of(char32_t code_point);

// White_Space=yes.
bool is_unicode_space(char32_t code_point);
// General category P*.
bool is_unicode_punctuation(char32_t code_point);
// General category S*.
bool is_unicode_symbol(char32_t code_point);
// General category C*: control, format, surrogate, private, unassigned.
bool is_unicode_control(char32_t code_point);
// General category M*: accents and other marks on a letter.
bool is_unicode_mark(char32_t code_point);
// The CJK ideograph blocks that BERT splits one by one.
bool is_cjk_ideograph(char32_t code_point);

}  // namespace strata
