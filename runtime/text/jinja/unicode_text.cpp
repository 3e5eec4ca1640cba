#include "runtime/text/jinja/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>

#include "runtime/text/jinja/casing_data.h"
#include "runtime/text/unicode.h"

namespace strata::jinja {
namespace {

bool in_ranges(char32_t c, std::span<const CodePointRange> ranges) {
  const auto range =
      std::lower_bound(ranges.begin(), ranges.end(), c,
                       [](const CodePointRange& r, char32_t x) { return r.last < x; });
  return range != ranges.end() && range->first <= c;
}

const SpecialCase* special_case(char32_t c) {
  if (c < 0x80) return nullptr;
  const auto cases = special_cases();
  const auto entry =
      std::lower_bound(cases.begin(), cases.end(), c,
                       [](const SpecialCase& s, char32_t x) { return s.code_point < x; });
  return entry != cases.end() && entry->code_point == c ? &*entry : nullptr;
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

char32_t simple_case(char32_t c, Case wanted) {
  const auto code = static_cast<utf8proc_int32_t>(c);
  switch (wanted) {
    case Case::upper:
      return static_cast<char32_t>(utf8proc_toupper(code));
    case Case::title:
      return static_cast<char32_t>(utf8proc_totitle(code));
    default:
      return static_cast<char32_t>(utf8proc_tolower(code));
  }
}

bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x2018 || c == 0x2019;
  }
}

// A capital sigma at the end of a word becomes a final small one.
bool is_final_sigma(std::string_view text, const Character& sigma) {
  bool cased_before = false;
  for (size_t end = sigma.begin; end > 0;) {
    const Character c = character_before(text, end);
    end = c.begin;
    if (is_case_ignorable(c.code_point)) continue;
    cased_before = is_cased(c.code_point);
    break;
  }
  if (!cased_before) return false;
  for (size_t at = sigma.begin + sigma.length; at < text.size();) {
    const Character c = character_at(text, at);
    at += c.length;
    if (is_case_ignorable(c.code_point)) continue;
    return !is_cased(c.code_point);
  }
  return true;
}

void append_folded(char32_t c, std::string& out) {
  utf8proc_int32_t folded[8];
  int boundary = 0;
  const utf8proc_ssize_t count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), folded,
                                                         8, UTF8PROC_CASEFOLD, &boundary);
  for (utf8proc_ssize_t i = 0; i < count && i < 8; ++i) {
    append_code_point(static_cast<char32_t>(folded[i]), out);
  }
}

}  // namespace

Character character_at(std::string_view text, size_t offset) {
  const auto first = static_cast<uint8_t>(text[offset]);
  if (first < 0x80) return {first, offset, 1};
  const DecodedCharacter c = decode_utf8(text, offset);
  return {c.code_point, offset, c.length};
}

Character character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
    --begin;
  const Character c = character_at(text, begin);
  if (c.begin + c.length == end) return c;
  return {kReplacementCharacter, end - 1, 1};
}

size_t offset_of(const Text& text, size_t index) {
  if (text.is_ascii()) return std::min(index, text.bytes.size());
  if (index >= text.length) return text.bytes.size();
  size_t offset = 0;
  for (; offset < text.bytes.size(); ++offset) {
    if ((static_cast<uint8_t>(text.bytes[offset]) & 0xC0) != 0x80 && index-- == 0) break;
  }
  return offset;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_alpha(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) { return is_decimal(c) || in_ranges(c, digits_beyond_decimals()); }

bool is_numeric(char32_t c) {
  const utf8proc_category_t k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO ||
         in_ranges(c, numeric_letters());
}

bool is_alnum(char32_t c) { return is_alpha(c) || is_numeric(c); }

bool is_upper(char32_t c) { return utf8proc_isupper(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_lower(char32_t c) { return utf8proc_islower(static_cast<utf8proc_int32_t>(c)) != 0; }

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_word(char32_t c) { return c == '_' || is_alnum(c); }

void append_code_point(char32_t c, std::string& out) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) {
    append_utf8(kReplacementCharacter, out);
  } else {
    append_utf8(c, out);
  }
}

void append_cased(std::string_view text, const Character& character, Case wanted,
                  std::string& out) {
  const char32_t c = character.code_point;
  if (wanted == Case::swap) {
    if (is_upper(c)) {
      wanted = Case::lower;
    } else if (is_lower(c)) {
      wanted = Case::upper;
    } else {
      out.append(text.substr(character.begin, character.length));
      return;
    }
  }
  if (wanted == Case::fold) {
    append_folded(c, out);
    return;
  }
  if (wanted == Case::lower) {
    if (c == 0x130) {  // a capital I with dot keeps its dot
      append_code_point('i', out);
      append_code_point(0x307, out);
      return;
    }
    if (c == 0x3A3) {
      append_code_point(is_final_sigma(text, character) ? 0x3C2 : 0x3C3, out);
      return;
    }
  } else if (const SpecialCase* special = special_case(c)) {
    for (const char32_t part : wanted == Case::upper ? special->upper : special->title) {
      if (part != 0) append_code_point(part, out);
    }
    return;
  }
  append_code_point(simple_case(c, wanted), out);
}

}  // namespace strata::jinja
