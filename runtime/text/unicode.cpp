#include "runtime/text/unicode.h"

#include <utf8proc.h>

#include <array>

namespace strata {
namespace {

bool is_continuation(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

utf8proc_category_t category_of(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool category_between(char32_t code_point, utf8proc_category_t first, utf8proc_category_t last) {
  const utf8proc_category_t category = category_of(code_point);
  return category >= first && category <= last;
}

}  // namespace

size_t announced_utf8_length(char first_byte) {
  const auto byte = static_cast<unsigned char>(first_byte);
  if (byte < 0xC0) return 1;
  if (byte < 0xE0) return 2;
  return byte < 0xF0 ? 3 : 4;
}

DecodedCharacter decode_utf8(std::string_view text, size_t offset) {
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  constexpr DecodedCharacter kInvalid = {kReplacementCharacter, 1, false};
  const auto first = static_cast<unsigned char>(text[offset]);
  if (first < 0x80) return {first, 1, true};
  if (first < 0xC2 || first > 0xF4) return kInvalid;
  const size_t length = announced_utf8_length(text[offset]);
  if (length > text.size() - offset) return kInvalid;
  char32_t code_point = first & (0x7FU >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[offset + i])) return kInvalid;
    code_point = (code_point << 6) | (static_cast<unsigned char>(text[offset + i]) & 0x3FU);
  }
  if (code_point < kLeast[length] || !is_scalar_value(code_point)) return kInvalid;
  return {code_point, length, true};
}

bool may_become_utf8(std::string_view text) {
  if (text.empty() || text.size() >= announced_utf8_length(text[0])) return false;
  // The least and the greatest bytes that can follow: one of them completes whatever can be.
  for (const char filler : {'\x80', '\xBF'}) {
    std::string completed(text);
    completed.resize(announced_utf8_length(text[0]), filler);
    if (decode_utf8(completed, 0).valid) return true;
  }
  return false;
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto put = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | (code_point >> 6));
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | (code_point >> 12));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | (code_point >> 18));
    put(0x80 | ((code_point >> 12) & 0x3F));
    put(0x80 | ((code_point >> 6) & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const DecodedCharacter character = decode_utf8(text, offset);
    if (character.valid) {
      result.append(text, offset, character.length);
    } else {
      append_utf8(kReplacementCharacter, result);
    }
    offset += character.length;
  }
  return result;
}

char32_t base_of(char32_t code_point) {
  std::array<utf8proc_int32_t, 8> parts{};
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(
      static_cast<utf8proc_int32_t>(code_point), parts.data(),
      static_cast<utf8proc_ssize_t>(parts.size()), UTF8PROC_DECOMPOSE, &boundary);
  return count > 0 ? static_cast<char32_t>(parts[0]) : code_point;
}

char32_t lower_of(char32_t code_point) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

bool is_unicode_space(char32_t code_point) {
  if (code_point < 0x80) return code_point == ' ' || (code_point >= 0x9 && code_point <= 0xD);
  return code_point == 0x85 ||
         category_between(code_point, UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool is_unicode_punctuation(char32_t code_point) {
  return category_between(code_point, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool is_unicode_symbol(char32_t code_point) {
  return category_between(code_point, UTF8PROC_CATEGORY_SM, UTF8PROC_CATEGORY_SO);
}

bool is_unicode_control(char32_t code_point) {
  const utf8proc_category_t category = category_of(code_point);
  return category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_CC;
}

bool is_unicode_mark(char32_t code_point) {
  return category_between(code_point, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool is_cjk_ideograph(char32_t code_point) {
  const auto between = [code_point](char32_t first, char32_t last) {
    return code_point >= first && code_point <= last;
  };
  return between(0x4E00, 0x9FFF) || between(0x3400, 0x4DBF) || between(0x20000, 0x2A6DF) ||
         between(0x2A700, 0x2CEAF) || between(0xF900, 0xFAFF) || between(0x2F800, 0x2FA1F);
}

}  // namespace strata
