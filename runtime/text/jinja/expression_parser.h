// Expressions: operators by precedence, literals, attributes, calls, filters and tests.
//
// Threads: externally synchronised.
#pragma once

#include <string_view>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/token_stream.h"

namespace strata::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& stream) : stream_(stream) {}

  // One expression; `conditional`: may be "a if b else c".
  Result<ExpressionPtr> parse(bool conditional = true);
  // One, or several with commas between them: a tuple. `end_name`: a name that ends it too.
  Result<ExpressionPtr> parse_tuple(bool conditional = true, std::string_view end_name = {});
  // Filters after "|". `input` may be null, for filter blocks; `inline_start`: the first has no
  // "|".
  Result<ExpressionPtr> parse_filters(ExpressionPtr input, bool inline_start);

  // Which of the names that change a macro's or loop's meaning were read since the last reset.
  struct NamesRead {
    bool varargs = false;
    bool kwargs = false;
    bool caller = false;
    bool loop = false;
  };
  NamesRead names_read;

 private:
  class Nesting;

  Result<ExpressionPtr> parse_or();
  Result<ExpressionPtr> parse_and();
  Result<ExpressionPtr> parse_not();
  Result<ExpressionPtr> parse_compare();
  Result<ExpressionPtr> parse_sum();
  Result<ExpressionPtr> parse_concat();
  Result<ExpressionPtr> parse_product();
  Result<ExpressionPtr> parse_power();
  Result<ExpressionPtr> parse_unary(bool with_filter);
  Result<ExpressionPtr> parse_primary();
  Result<ExpressionPtr> parse_name();
  Result<ExpressionPtr> parse_parentheses();
  Result<ExpressionPtr> parse_list();
  Result<ExpressionPtr> parse_dict();
  Result<ExpressionPtr> parse_postfix(ExpressionPtr node);
  Result<ExpressionPtr> parse_filter_expression(ExpressionPtr node);
  Result<ExpressionPtr> parse_subscript(ExpressionPtr node);
  Result<ExpressionPtr> parse_subscribed();
  Result<ExpressionPtr> parse_test(ExpressionPtr node);
  Result<ExpressionPtr> parse_call(ExpressionPtr node);
  Result<std::unique_ptr<Arguments>> parse_arguments();
  Status parse_argument(Arguments& arguments);

  ExpressionPtr make(ExpressionKind kind, Position position) const;
  // Adds children, which may be null, and checks the height.
  Result<ExpressionPtr> with(ExpressionPtr node, std::vector<ExpressionPtr> children) const;
  Result<ExpressionPtr> with_arguments(ExpressionPtr node,
                                       std::unique_ptr<Arguments> arguments) const;
  Result<ExpressionPtr> binary(Operation operation, Position position, ExpressionPtr left,
                               ExpressionPtr right) const;

  TokenStream& stream_;
  uint32_t nesting_ = 0;
};

}  // namespace strata::jinja
