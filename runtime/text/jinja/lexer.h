// The tokens of a template, with the white space control of Jinja's trim_blocks and lstrip_blocks
// (transformers' settings) and of the - and + signs already applied.
//
// Source: https://jinja.palletsprojects.com/en/stable/templates (white space control, escaping),
// checked against jinja2 3.1 by tests/scripts/make_template_vectors.py.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace strata::jinja {

enum class TokenKind : uint8_t {
  data,            // text between tags
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,
  integer,  // value
  real,     // value
  symbol,   // an operator or bracket: text
  end,
};

struct Token {
  TokenKind kind;
  Position position;
  std::string text;  // as written; strings without quotes and with their escapes done
  Value value;

  bool is_symbol(std::string_view symbol) const {
    return kind == TokenKind::symbol && text == symbol;
  }
  bool is_name(std::string_view name) const { return kind == TokenKind::name && text == name; }
};

// The tokens, closed by one of kind `end`.
// Errors: INVALID_ARGUMENT "line L, column C: ..." for an unclosed tag, string or bracket, a
// character that begins no token, a malformed escape or number.
Result<std::vector<Token>> tokenize(std::string_view source);

// A token for a message: "'endif'", "the end of the template".
std::string describe(const Token& token);

}  // namespace strata::jinja
