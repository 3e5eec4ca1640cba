// Walks through the tokens of a template for the parsers.
//
// Threads: externally synchronised.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/lexer.h"

namespace strata::jinja {

class TokenStream {
 public:
  // Requires: the last token is of kind `end`.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[next_]; }
  const Token& look_ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  // The current token, and on to the next; stays at the end.
  const Token& take() {
    const Token& token = current();
    if (next_ + 1 < tokens_.size()) ++next_;
    return token;
  }
  bool is_kind(TokenKind kind) const { return current().kind == kind; }
  bool is_symbol(std::string_view symbol) const { return current().is_symbol(symbol); }
  bool is_name(std::string_view name) const { return current().is_name(name); }
  bool skip_symbol(std::string_view symbol) {
    const bool found = is_symbol(symbol);
    if (found) take();
    return found;
  }
  bool skip_name(std::string_view name) {
    const bool found = is_name(name);
    if (found) take();
    return found;
  }

  // Errors: INVALID_ARGUMENT "line L, column C: found ..., expected ...".
  Status expect_symbol(std::string_view symbol);
  Status expect_name(std::string_view name);
  Status expect(TokenKind kind, std::string_view what);
  Result<std::string> expect_identifier(std::string_view what);
  Status error(std::string_view message) const { return error(current().position, message); }
  Status error(Position position, std::string_view message) const;

 private:
  Status unexpected(std::string_view expected) const;

  std::vector<Token> tokens_;
  size_t next_ = 0;
};

}  // namespace strata::jinja
