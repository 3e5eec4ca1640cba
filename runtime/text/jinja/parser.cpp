#include "runtime/text/jinja/parser.h"

#include <fmt/format.h>

#include <array>
#include <initializer_list>

#include "runtime/text/jinja/expression_parser.h"
#include "runtime/text/jinja/token_stream.h"

namespace strata::jinja {
namespace {

// Blocks in blocks. Real templates stay under 15.
constexpr uint32_t kNestingMax = 60;

TextRef constant_text(std::string text) {
  return std::make_shared<const Text>(MarkedText{std::move(text), {}}, false, nullptr);
}

using EndTags = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : stream_(std::move(tokens)), expressions_(stream_) {}

  Result<Body> run() { return parse_body({}); }

 private:
  using StatementPtr = std::unique_ptr<Statement>;

  // Up to one of the end tags, whose name is the current token afterwards.
  Result<Body> parse_body(EndTags ends);
  // "%}", the body, the end tag's name, which is taken and returned.
  Result<std::string> parse_block(StatementPtr& statement, EndTags ends);
  Result<StatementPtr> parse_statement();
  Result<StatementPtr> parse_for();
  Result<StatementPtr> parse_if();
  Result<StatementPtr> parse_set();
  Result<StatementPtr> parse_macro();
  Result<StatementPtr> parse_call();
  Result<StatementPtr> parse_filter();
  Result<StatementPtr> parse_with();
  Result<StatementPtr> parse_named_block();
  Result<StatementPtr> parse_print();
  Result<StatementPtr> parse_autoescape();
  Result<StatementPtr> parse_scope(std::string_view end);
  Result<StatementPtr> parse_loop_control(StatementKind kind);

  Status parse_signature(Macro& macro);
  // The body of something called like a function: loops outside of it do not count inside.
  Status parse_function_body(Macro& macro, StatementPtr& statement, std::string_view end);
  Result<Target> parse_target(bool with_tuple, std::string_view end_name);
  Result<Target> parse_single_target();

  StatementPtr make(StatementKind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->position = stream_.current().position;
    return statement;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  uint32_t nesting_ = 0;
  uint32_t loops_ = 0;  // around the current place, within its macro
};

Result<Body> Parser::parse_body(EndTags ends) {
  Body body;
  while (!stream_.is_kind(TokenKind::end)) {
    StatementPtr statement = make(StatementKind::data);
    const Token& token = stream_.take();
    if (token.kind == TokenKind::data) {
      statement->text = constant_text(token.text);
      body.push_back(std::move(statement));
    } else if (token.kind == TokenKind::variable_begin) {
      statement->kind = StatementKind::output;
      statement->expressions.push_back(TRY(expressions_.parse_tuple()));
      TRY(stream_.expect(TokenKind::variable_end, "'}}'"));
      body.push_back(std::move(statement));
    } else {
      for (const std::string_view end : ends) {
        if (stream_.is_name(end)) return body;
      }
      if (++nesting_ > kNestingMax) {
        return stream_.error(fmt::format("blocks nest deeper than {}", kNestingMax));
      }
      body.push_back(TRY(parse_statement()));
      --nesting_;
      TRY(stream_.expect(TokenKind::block_end, "'%}'"));
    }
  }
  if (ends.size() != 0) {
    return stream_.error(
        fmt::format("the template ends where '{{% {} %}}' is missing", *(ends.end() - 1)));
  }
  return body;
}

Result<std::string> Parser::parse_block(StatementPtr& statement, EndTags ends) {
  stream_.skip_symbol(":");
  TRY(stream_.expect(TokenKind::block_end, "'%}'"));
  statement->bodies.push_back(TRY(parse_body(ends)));
  return stream_.take().text;
}

Result<std::unique_ptr<Statement>> Parser::parse_statement() {
  if (!stream_.is_kind(TokenKind::name)) {
    return stream_.error(
        fmt::format("found {}, expected a tag's name", describe(stream_.current())));
  }
  const std::string tag = stream_.current().text;
  if (tag == "for") return parse_for();
  if (tag == "if") return parse_if();
  if (tag == "set") return parse_set();
  if (tag == "macro") return parse_macro();
  if (tag == "call") return parse_call();
  if (tag == "filter") return parse_filter();
  if (tag == "with") return parse_with();
  if (tag == "block") return parse_named_block();
  if (tag == "print") return parse_print();
  if (tag == "autoescape") return parse_autoescape();
  if (tag == "generation") return parse_scope("endgeneration");
  if (tag == "break") return parse_loop_control(StatementKind::break_);
  if (tag == "continue") return parse_loop_control(StatementKind::continue_);
  for (const std::string_view loader : {"include", "import", "from", "extends"}) {
    if (tag == loader) {
      return stream_.error(
          fmt::format("'{}' needs other templates, and a chat template has none", tag));
    }
  }
  return stream_.error(fmt::format("unknown tag '{}'", tag));
}

Result<Target> Parser::parse_single_target() {
  Target target;
  target.position = stream_.current().position;
  if (stream_.skip_symbol("(")) {
    target = TRY(parse_target(true, {}));
    TRY(stream_.expect_symbol(")"));
    return target;
  }
  target.name = TRY(stream_.expect_identifier("a name to assign to"));
  for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
    if (target.name == constant) {
      return stream_.error(target.position, fmt::format("'{}' cannot be assigned to", constant));
    }
  }
  if (stream_.skip_symbol(".")) target.attribute = TRY(stream_.expect_identifier("an attribute"));
  return target;
}

Result<Target> Parser::parse_target(bool with_tuple, std::string_view end_name) {
  if (++nesting_ > kNestingMax) return stream_.error("the target nests too deep");
  Target first = TRY(parse_single_target());
  if (with_tuple && stream_.is_symbol(",")) {
    Target tuple;
    tuple.position = first.position;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(first));
    while (stream_.skip_symbol(",")) {
      if (stream_.is_symbol("=") || stream_.is_symbol(")") || stream_.is_name(end_name)) break;
      tuple.parts.push_back(TRY(parse_single_target()));
    }
    first = std::move(tuple);
  }
  --nesting_;
  return first;
}

Result<std::unique_ptr<Statement>> Parser::parse_for() {
  StatementPtr loop = make(StatementKind::for_);
  stream_.take();
  loop->targets.push_back(TRY(parse_target(true, "in")));
  TRY(stream_.expect_name("in"));
  loop->expressions.push_back(TRY(expressions_.parse_tuple(false, "recursive")));
  ExpressionPtr condition;
  if (stream_.skip_name("if")) condition = TRY(expressions_.parse());
  loop->expressions.push_back(std::move(condition));
  loop->recursive = stream_.skip_name("recursive");
  // Whether `loop` is read is asked of the body alone, and kept for loops around it.
  const bool outer_reads_loop = expressions_.names_read.loop;
  expressions_.names_read.loop = false;
  ++loops_;
  const std::string end = TRY(parse_block(loop, {"else", "endfor"}));
  --loops_;
  loop->uses_loop = expressions_.names_read.loop || loop->recursive;
  expressions_.names_read.loop = outer_reads_loop;
  if (end == "else") TRY(parse_block(loop, {"endfor"}));
  return loop;
}

Result<std::unique_ptr<Statement>> Parser::parse_if() {
  StatementPtr statement = make(StatementKind::if_);
  while (true) {
    stream_.take();  // "if", then "elif" as its end tag
    statement->expressions.push_back(TRY(expressions_.parse_tuple(false)));
    stream_.skip_symbol(":");
    TRY(stream_.expect(TokenKind::block_end, "'%}'"));
    statement->bodies.push_back(TRY(parse_body({"elif", "else", "endif"})));
    if (!stream_.is_name("elif")) break;
  }
  if (stream_.take().text == "else") TRY(parse_block(statement, {"endif"}));
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_set() {
  StatementPtr statement = make(StatementKind::set);
  stream_.take();
  statement->targets.push_back(TRY(parse_target(true, {})));
  if (stream_.skip_symbol("=")) {
    statement->expressions.push_back(TRY(expressions_.parse_tuple()));
    return statement;
  }
  statement->kind = StatementKind::set_block;
  statement->expressions.push_back(TRY(expressions_.parse_filters(nullptr, false)));
  TRY(parse_block(statement, {"endset"}));
  return statement;
}

Status Parser::parse_signature(Macro& macro) {
  TRY(stream_.expect_symbol("("));
  while (!stream_.is_symbol(")")) {
    if (!macro.parameters.empty()) TRY(stream_.expect_symbol(","));
    macro.parameters.push_back(TRY(stream_.expect_identifier("a parameter's name")));
    if (stream_.skip_symbol("=")) {
      macro.defaults.push_back(TRY(expressions_.parse()));
    } else if (!macro.defaults.empty()) {
      return stream_.error("a parameter without a default follows one with a default");
    }
  }
  stream_.take();
  return ok_status();
}

Status Parser::parse_function_body(Macro& macro, StatementPtr& statement, std::string_view end) {
  const uint32_t outer_loops = std::exchange(loops_, 0);
  const auto outer_names = std::exchange(expressions_.names_read, {});
  TRY(parse_block(statement, {end}));
  const auto inner = expressions_.names_read;
  macro.uses_varargs = inner.varargs;
  macro.uses_kwargs = inner.kwargs;
  macro.uses_caller = inner.caller;
  // A macro around this one counts as reading them too, and so does a loop.
  expressions_.names_read = {.varargs = outer_names.varargs || inner.varargs,
                             .kwargs = outer_names.kwargs || inner.kwargs,
                             .caller = outer_names.caller || inner.caller,
                             .loop = outer_names.loop || inner.loop};
  loops_ = outer_loops;
  macro.body = std::move(statement->bodies.back());
  statement->bodies.clear();
  return ok_status();
}

Result<std::unique_ptr<Statement>> Parser::parse_macro() {
  StatementPtr statement = make(StatementKind::macro);
  stream_.take();
  statement->macro = std::make_unique<Macro>();
  Macro& macro = *statement->macro;
  macro.name = TRY(stream_.expect_identifier("the macro's name"));
  TRY(parse_signature(macro));
  TRY(parse_function_body(macro, statement, "endmacro"));
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_call() {
  StatementPtr statement = make(StatementKind::call_block);
  stream_.take();
  statement->macro = std::make_unique<Macro>();
  statement->macro->name = "caller";
  if (stream_.is_symbol("(")) TRY(parse_signature(*statement->macro));
  ExpressionPtr call = TRY(expressions_.parse());
  if (call->kind != ExpressionKind::call) {
    return stream_.error(call->position, "a call block needs a call, such as name(...)");
  }
  statement->expressions.push_back(std::move(call));
  TRY(parse_function_body(*statement->macro, statement, "endcall"));
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_filter() {
  StatementPtr statement = make(StatementKind::filter_block);
  stream_.take();
  statement->expressions.push_back(TRY(expressions_.parse_filters(nullptr, true)));
  TRY(parse_block(statement, {"endfilter"}));
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_with() {
  StatementPtr statement = make(StatementKind::with);
  stream_.take();
  while (!stream_.is_kind(TokenKind::block_end)) {
    if (!statement->targets.empty()) TRY(stream_.expect_symbol(","));
    statement->targets.push_back(TRY(parse_target(false, {})));
    TRY(stream_.expect_symbol("="));
    statement->expressions.push_back(TRY(expressions_.parse()));
  }
  TRY(parse_block(statement, {"endwith"}));
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_named_block() {
  StatementPtr statement = make(StatementKind::block);
  stream_.take();
  const std::string name = TRY(stream_.expect_identifier("the block's name"));
  // "scoped": its body sees the variables around it.
  if (stream_.skip_name("scoped")) statement->kind = StatementKind::scope;
  stream_.skip_name("required");
  const uint32_t outer_loops = std::exchange(loops_, 0);
  TRY(parse_block(statement, {"endblock"}));
  loops_ = outer_loops;
  stream_.skip_name(name);
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_print() {
  StatementPtr statement = make(StatementKind::output);
  stream_.take();
  while (!stream_.is_kind(TokenKind::block_end)) {
    if (!statement->expressions.empty()) TRY(stream_.expect_symbol(","));
    statement->expressions.push_back(TRY(expressions_.parse()));
  }
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_autoescape() {
  stream_.take();
  if (!stream_.is_name("false") && !stream_.is_name("False")) {
    return stream_.error("only 'autoescape false' is supported");
  }
  return parse_scope("endautoescape");
}

Result<std::unique_ptr<Statement>> Parser::parse_scope(std::string_view end) {
  StatementPtr statement = make(StatementKind::scope);
  stream_.take();
  const uint32_t outer_loops = std::exchange(loops_, 0);
  TRY(parse_block(statement, {end}));
  loops_ = outer_loops;
  return statement;
}

Result<std::unique_ptr<Statement>> Parser::parse_loop_control(StatementKind kind) {
  StatementPtr statement = make(kind);
  if (loops_ == 0)
    return stream_.error(fmt::format("'{}' outside of a loop", stream_.current().text));
  stream_.take();
  return statement;
}

}  // namespace

Result<Body> parse(std::string_view source) { return Parser(TRY(tokenize(source))).run(); }

}  // namespace strata::jinja
