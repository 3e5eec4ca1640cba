// Tables behind unicode_text.h. Threads: constants.
#pragma once

#include <span>

namespace strata::jinja {

// A letter whose upper or title case is several code points; unused places are 0.
struct SpecialCase {
  char32_t code_point;
  char32_t upper[3];
  char32_t title[3];
};

// Both ends belong to it.
struct CodePointRange {
  char32_t first;
  char32_t last;
};

// All ascending.
std::span<const SpecialCase> special_cases();
std::span<const CodePointRange> digits_beyond_decimals();
std::span<const CodePointRange> numeric_letters();

}  // namespace strata::jinja
