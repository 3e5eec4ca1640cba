#include "runtime/text/jinja/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace strata::jinja {
namespace {

// Brackets in brackets; each counts twice. Real templates stay under 40.
constexpr uint32_t kNestingMax = 200;
// Of a tree: chains such as a + b + c lean to the left, and a real one has 30 links.
constexpr uint32_t kHeightMax = 300;

template <typename... Pointers>
std::vector<ExpressionPtr> children_of(Pointers... pointers) {
  std::vector<ExpressionPtr> children;
  (children.push_back(std::move(pointers)), ...);
  return children;
}

TextRef constant_text(std::string text) {
  return std::make_shared<const Text>(MarkedText{std::move(text), {}}, false, nullptr);
}

std::optional<Operation> comparison(const Token& token) {
  if (token.kind != TokenKind::symbol) return std::nullopt;
  if (token.text == "==") return Operation::equal;
  if (token.text == "!=") return Operation::not_equal;
  if (token.text == "<") return Operation::less;
  if (token.text == "<=") return Operation::less_equal;
  if (token.text == ">") return Operation::greater;
  if (token.text == ">=") return Operation::greater_equal;
  return std::nullopt;
}

std::optional<Operation> product_operation(const Token& token) {
  if (token.is_symbol("*")) return Operation::multiply;
  if (token.is_symbol("/")) return Operation::divide;
  if (token.is_symbol("//")) return Operation::floor_divide;
  if (token.is_symbol("%")) return Operation::modulo;
  return std::nullopt;
}

}  // namespace

class ExpressionParser::Nesting {
 public:
  explicit Nesting(ExpressionParser& parser) : parser_(parser) { ++parser_.nesting_; }
  ~Nesting() { --parser_.nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;
  Status status() const {
    if (parser_.nesting_ <= kNestingMax) return ok_status();
    return parser_.stream_.error(fmt::format("expressions nest deeper than {}", kNestingMax));
  }

 private:
  ExpressionParser& parser_;
};

ExpressionPtr ExpressionParser::make(ExpressionKind kind, Position position) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->position = position;
  return node;
}

Result<ExpressionPtr> ExpressionParser::with(ExpressionPtr node,
                                             std::vector<ExpressionPtr> children) const {
  for (ExpressionPtr& child : children) {
    if (child != nullptr) node->height = std::max(node->height, child->height + 1);
    node->children.push_back(std::move(child));
  }
  if (node->height > kHeightMax) {
    return stream_.error(node->position,
                         fmt::format("the expression has more than {} links", kHeightMax));
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::with_arguments(ExpressionPtr node,
                                                       std::unique_ptr<Arguments> arguments) const {
  const auto look_at = [&node](const ExpressionPtr& child) {
    if (child != nullptr) node->height = std::max(node->height, child->height + 1);
  };
  for (const ExpressionPtr& argument : arguments->positional) look_at(argument);
  for (const auto& named : arguments->named) look_at(named.second);
  look_at(arguments->more_positional);
  look_at(arguments->more_named);
  node->arguments = std::move(arguments);
  return with(std::move(node), {});
}

Result<ExpressionPtr> ExpressionParser::binary(Operation operation, Position position,
                                               ExpressionPtr left, ExpressionPtr right) const {
  ExpressionPtr node = make(ExpressionKind::binary, position);
  node->operation = operation;
  return with(std::move(node), children_of(std::move(left), std::move(right)));
}

Result<ExpressionPtr> ExpressionParser::parse(bool conditional) {
  const Nesting nesting(*this);
  TRY(nesting.status());
  ExpressionPtr node = TRY(parse_or());
  while (conditional && stream_.is_name("if")) {
    ExpressionPtr choice = make(ExpressionKind::conditional, stream_.take().position);
    ExpressionPtr condition = TRY(parse_or());
    ExpressionPtr otherwise;
    if (stream_.skip_name("else")) otherwise = TRY(parse(true));
    node = TRY(with(std::move(choice),
                    children_of(std::move(node), std::move(condition), std::move(otherwise))));
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_tuple(bool conditional, std::string_view end_name) {
  const Position position = stream_.current().position;
  const auto at_end = [&] {
    return stream_.is_kind(TokenKind::variable_end) || stream_.is_kind(TokenKind::block_end) ||
           stream_.is_symbol(")") || (!end_name.empty() && stream_.is_name(end_name));
  };
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_end()) {
    items.push_back(TRY(parse(conditional)));
    if (!stream_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (items.empty()) {
    return stream_.error(
        fmt::format("found {}, expected an expression", describe(stream_.current())));
  }
  if (!is_tuple) return std::move(items[0]);
  return with(make(ExpressionKind::tuple, position), std::move(items));
}

Result<ExpressionPtr> ExpressionParser::parse_or() {
  ExpressionPtr left = TRY(parse_and());
  while (stream_.is_name("or")) {
    const Position position = stream_.take().position;
    ExpressionPtr right = TRY(parse_and());
    left = TRY(binary(Operation::logical_or, position, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_and() {
  ExpressionPtr left = TRY(parse_not());
  while (stream_.is_name("and")) {
    const Position position = stream_.take().position;
    ExpressionPtr right = TRY(parse_not());
    left = TRY(binary(Operation::logical_and, position, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_not() {
  if (!stream_.is_name("not")) return parse_compare();
  const Nesting nesting(*this);
  TRY(nesting.status());
  ExpressionPtr node = make(ExpressionKind::unary, stream_.take().position);
  node->operation = Operation::logical_not;
  ExpressionPtr operand = TRY(parse_not());
  return with(std::move(node), children_of(std::move(operand)));
}

Result<ExpressionPtr> ExpressionParser::parse_compare() {
  ExpressionPtr first = TRY(parse_sum());
  ExpressionPtr node;
  std::vector<ExpressionPtr> operands;
  while (true) {
    std::optional<Operation> operation = comparison(stream_.current());
    const Position position = stream_.current().position;
    if (stream_.is_name("in")) operation = Operation::in;
    if (stream_.is_name("not") && stream_.look_ahead().is_name("in")) {
      stream_.take();
      operation = Operation::not_in;
    }
    if (!operation) break;
    stream_.take();
    if (node == nullptr) {
      node = make(ExpressionKind::compare, position);
      operands.push_back(std::move(first));
    }
    node->comparisons.push_back(*operation);
    operands.push_back(TRY(parse_sum()));
  }
  if (node == nullptr) return first;
  return with(std::move(node), std::move(operands));
}

Result<ExpressionPtr> ExpressionParser::parse_sum() {
  ExpressionPtr left = TRY(parse_concat());
  while (stream_.is_symbol("+") || stream_.is_symbol("-")) {
    const Token& token = stream_.take();
    const Operation operation = token.text == "+" ? Operation::add : Operation::subtract;
    const Position position = token.position;
    ExpressionPtr right = TRY(parse_concat());
    left = TRY(binary(operation, position, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_concat() {
  const Position position = stream_.current().position;
  std::vector<ExpressionPtr> parts;
  parts.push_back(TRY(parse_product()));
  while (stream_.skip_symbol("~")) parts.push_back(TRY(parse_product()));
  if (parts.size() == 1) return std::move(parts[0]);
  return with(make(ExpressionKind::concat, position), std::move(parts));
}

Result<ExpressionPtr> ExpressionParser::parse_product() {
  ExpressionPtr left = TRY(parse_power());
  while (const auto operation = product_operation(stream_.current())) {
    const Position position = stream_.take().position;
    ExpressionPtr right = TRY(parse_power());
    left = TRY(binary(*operation, position, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_power() {
  ExpressionPtr left = TRY(parse_unary(true));
  while (stream_.is_symbol("**")) {
    const Position position = stream_.take().position;
    ExpressionPtr right = TRY(parse_unary(true));
    left = TRY(binary(Operation::power, position, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::parse_unary(bool with_filter) {
  const Nesting nesting(*this);
  TRY(nesting.status());
  ExpressionPtr node;
  if (stream_.is_symbol("-") || stream_.is_symbol("+")) {
    const Token& token = stream_.take();
    node = make(ExpressionKind::unary, token.position);
    node->operation = token.text == "-" ? Operation::negate : Operation::plus;
    ExpressionPtr operand = TRY(parse_unary(false));
    node = TRY(with(std::move(node), children_of(std::move(operand))));
  } else {
    node = TRY(parse_primary());
  }
  node = TRY(parse_postfix(std::move(node)));
  if (with_filter) node = TRY(parse_filter_expression(std::move(node)));
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_primary() {
  const Token& token = stream_.current();
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string: {
      ExpressionPtr node = make(ExpressionKind::constant, token.position);
      std::string text;
      while (stream_.is_kind(TokenKind::string)) text += stream_.take().text;
      node->value = constant_text(std::move(text));
      return node;
    }
    case TokenKind::integer:
    case TokenKind::real: {
      ExpressionPtr node = make(ExpressionKind::constant, token.position);
      node->value = token.value;
      stream_.take();
      return node;
    }
    default:
      break;
  }
  if (token.is_symbol("(")) return parse_parentheses();
  if (token.is_symbol("[")) return parse_list();
  if (token.is_symbol("{")) return parse_dict();
  return stream_.error(fmt::format("found {}, expected an expression", describe(token)));
}

Result<ExpressionPtr> ExpressionParser::parse_name() {
  const Token& token = stream_.take();
  const std::string& name = token.text;
  ExpressionPtr node = make(ExpressionKind::constant, token.position);
  if (name == "true" || name == "True") {
    node->value = true;
  } else if (name == "false" || name == "False") {
    node->value = false;
  } else if (name != "none" && name != "None") {
    node->kind = ExpressionKind::name;
    node->name = name;
    names_read.varargs |= name == "varargs";
    names_read.kwargs |= name == "kwargs";
    names_read.caller |= name == "caller";
    names_read.loop |= name == "loop";
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_parentheses() {
  const Position position = stream_.take().position;
  if (stream_.skip_symbol(")")) return make(ExpressionKind::tuple, position);
  ExpressionPtr node = TRY(parse_tuple());
  TRY(stream_.expect_symbol(")"));
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_list() {
  ExpressionPtr node = make(ExpressionKind::list, stream_.take().position);
  std::vector<ExpressionPtr> items;
  while (!stream_.is_symbol("]")) {
    if (!items.empty()) TRY(stream_.expect_symbol(","));
    if (stream_.is_symbol("]")) break;
    items.push_back(TRY(parse()));
  }
  stream_.take();
  return with(std::move(node), std::move(items));
}

Result<ExpressionPtr> ExpressionParser::parse_dict() {
  ExpressionPtr node = make(ExpressionKind::dict, stream_.take().position);
  std::vector<ExpressionPtr> items;
  while (!stream_.is_symbol("}")) {
    if (!items.empty()) TRY(stream_.expect_symbol(","));
    if (stream_.is_symbol("}")) break;
    items.push_back(TRY(parse()));
    TRY(stream_.expect_symbol(":"));
    items.push_back(TRY(parse()));
  }
  stream_.take();
  return with(std::move(node), std::move(items));
}

Result<ExpressionPtr> ExpressionParser::parse_postfix(ExpressionPtr node) {
  while (true) {
    if (stream_.is_symbol(".") || stream_.is_symbol("[")) {
      node = TRY(parse_subscript(std::move(node)));
    } else if (stream_.is_symbol("(")) {
      node = TRY(parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_filter_expression(ExpressionPtr node) {
  while (true) {
    if (stream_.is_symbol("|")) {
      node = TRY(parse_filters(std::move(node), false));
    } else if (stream_.is_name("is")) {
      node = TRY(parse_test(std::move(node)));
    } else if (stream_.is_symbol("(")) {
      node = TRY(parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::parse_subscript(ExpressionPtr node) {
  const Token& opening = stream_.take();
  const Position position = opening.position;
  if (opening.text == ".") {
    const Token& token = stream_.take();
    if (token.kind == TokenKind::name) {
      ExpressionPtr attribute = make(ExpressionKind::attribute, position);
      attribute->name = token.text;
      return with(std::move(attribute), children_of(std::move(node)));
    }
    if (token.kind != TokenKind::integer) {
      return stream_.error(token.position,
                           fmt::format("found {}, expected a name or a number", describe(token)));
    }
    ExpressionPtr index = make(ExpressionKind::constant, token.position);
    index->value = token.value;
    return with(make(ExpressionKind::item, position),
                children_of(std::move(node), std::move(index)));
  }
  std::vector<ExpressionPtr> keys;
  while (!stream_.is_symbol("]")) {
    if (!keys.empty()) TRY(stream_.expect_symbol(","));
    keys.push_back(TRY(parse_subscribed()));
  }
  stream_.take();
  ExpressionPtr key;
  if (keys.size() == 1) {
    key = std::move(keys[0]);
  } else {
    key = TRY(with(make(ExpressionKind::tuple, position), std::move(keys)));
  }
  return with(make(ExpressionKind::item, position), children_of(std::move(node), std::move(key)));
}

Result<ExpressionPtr> ExpressionParser::parse_subscribed() {
  const Position position = stream_.current().position;
  ExpressionPtr first;
  if (!stream_.is_symbol(":")) {
    first = TRY(parse());
    if (!stream_.is_symbol(":")) return first;
  }
  stream_.take();
  const auto at_end = [this] { return stream_.is_symbol("]") || stream_.is_symbol(","); };
  ExpressionPtr end;
  ExpressionPtr step;
  if (!stream_.is_symbol(":") && !at_end()) end = TRY(parse());
  if (stream_.skip_symbol(":") && !at_end()) step = TRY(parse());
  return with(make(ExpressionKind::slice, position),
              children_of(std::move(first), std::move(end), std::move(step)));
}

Result<ExpressionPtr> ExpressionParser::parse_filters(ExpressionPtr node, bool inline_start) {
  while (inline_start || stream_.is_symbol("|")) {
    if (!inline_start) stream_.take();
    inline_start = false;
    ExpressionPtr filter = make(ExpressionKind::filter, stream_.current().position);
    filter->name = TRY(stream_.expect_identifier("the name of a filter"));
    while (stream_.skip_symbol(".")) {
      filter->name += "." + TRY(stream_.expect_identifier("the name of a filter"));
    }
    auto arguments = std::make_unique<Arguments>();
    if (stream_.is_symbol("(")) arguments = TRY(parse_arguments());
    filter = TRY(with_arguments(std::move(filter), std::move(arguments)));
    node = TRY(with(std::move(filter), children_of(std::move(node))));
  }
  return node;
}

Result<ExpressionPtr> ExpressionParser::parse_test(ExpressionPtr node) {
  const Position position = stream_.take().position;
  const bool negated = stream_.skip_name("not");
  ExpressionPtr test = make(ExpressionKind::test, stream_.current().position);
  test->name = TRY(stream_.expect_identifier("the name of a test"));
  while (stream_.skip_symbol(".")) {
    test->name += "." + TRY(stream_.expect_identifier("the name of a test"));
  }
  auto arguments = std::make_unique<Arguments>();
  const TokenKind kind = stream_.current().kind;
  const bool keyword = stream_.is_name("else") || stream_.is_name("or") || stream_.is_name("and");
  if (stream_.is_symbol("(")) {
    arguments = TRY(parse_arguments());
  } else if ((kind == TokenKind::name && !keyword) || kind == TokenKind::string ||
             kind == TokenKind::integer || kind == TokenKind::real || stream_.is_symbol("[") ||
             stream_.is_symbol("{")) {
    if (stream_.is_name("is")) return stream_.error("tests with 'is' cannot be chained");
    const Nesting nesting(*this);
    TRY(nesting.status());
    ExpressionPtr argument = TRY(parse_primary());
    arguments->positional.push_back(TRY(parse_postfix(std::move(argument))));
  }
  test = TRY(with_arguments(std::move(test), std::move(arguments)));
  test = TRY(with(std::move(test), children_of(std::move(node))));
  if (!negated) return test;
  ExpressionPtr inverse = make(ExpressionKind::unary, position);
  inverse->operation = Operation::logical_not;
  return with(std::move(inverse), children_of(std::move(test)));
}

Result<ExpressionPtr> ExpressionParser::parse_call(ExpressionPtr node) {
  ExpressionPtr call = make(ExpressionKind::call, stream_.current().position);
  std::unique_ptr<Arguments> arguments = TRY(parse_arguments());
  call = TRY(with_arguments(std::move(call), std::move(arguments)));
  return with(std::move(call), children_of(std::move(node)));
}

Result<std::unique_ptr<Arguments>> ExpressionParser::parse_arguments() {
  auto arguments = std::make_unique<Arguments>();
  TRY(stream_.expect_symbol("("));
  bool first = true;
  while (!stream_.is_symbol(")")) {
    if (!first) TRY(stream_.expect_symbol(","));
    if (stream_.is_symbol(")")) break;
    TRY(parse_argument(*arguments));
    first = false;
  }
  stream_.take();
  return arguments;
}

Status ExpressionParser::parse_argument(Arguments& arguments) {
  const Position position = stream_.current().position;
  const auto wrong_order = [&] {
    return stream_.error(position, "an argument in a place where none of its kind may stand");
  };
  if (stream_.skip_symbol("*")) {
    if (arguments.more_positional != nullptr || arguments.more_named != nullptr) {
      return wrong_order();
    }
    arguments.more_positional = TRY(parse());
  } else if (stream_.skip_symbol("**")) {
    if (arguments.more_named != nullptr) return wrong_order();
    arguments.more_named = TRY(parse());
  } else if (stream_.is_kind(TokenKind::name) && stream_.look_ahead().is_symbol("=")) {
    if (arguments.more_named != nullptr) return wrong_order();
    std::string name = stream_.take().text;
    stream_.take();
    ExpressionPtr value = TRY(parse());
    arguments.named.emplace_back(std::move(name), std::move(value));
  } else {
    if (arguments.more_positional != nullptr || arguments.more_named != nullptr ||
        !arguments.named.empty()) {
      return wrong_order();
    }
    arguments.positional.push_back(TRY(parse()));
  }
  return ok_status();
}

}  // namespace strata::jinja
