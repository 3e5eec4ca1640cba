// Characters as Python's str sees them: classes, case, and walking through UTF-8 by code points.
//
// Bytes that are no UTF-8 count as one character each and have no class; JSON input and compiled
// templates hold none.
//
// Threads: free functions, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "runtime/text/jinja/marked_text.h"
#include "runtime/text/jinja/value.h"

namespace strata::jinja {

struct Character {
  char32_t code_point;
  size_t begin;
  size_t length;
};

// The character at `offset`. Requires: offset < text.size().
Character character_at(std::string_view text, size_t offset);
// The one that ends at `end`. Requires: end > 0.
Character character_before(std::string_view text, size_t end);

// Byte offset of code point `index`; the size of the text if it has fewer.
size_t offset_of(const Text& text, size_t index);
// Code points in bytes.
size_t count_code_points(std::string_view text);

// str.isspace(), which strip() and the \s of Python's regular expressions use.
bool is_space(char32_t c);
// A break of str.splitlines().
bool is_line_break(char32_t c);
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_alnum(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
// False for what repr() escapes.
bool is_printable(char32_t c);
// Letters, digits and underscore: the \w of Python's regular expressions.
bool is_word(char32_t c);

enum class Case : uint8_t { upper, lower, title, fold, swap };

// Appends a character in another case, as UTF-8. `text` and `character`: where it stands, for the
// Greek final sigma.
void append_cased(std::string_view text, const Character& character, Case wanted, std::string& out);

void append_code_point(char32_t c, std::string& out);

}  // namespace strata::jinja
