// Expressions. Statements are in statements.cpp.
#include "runtime/text/jinja/evaluator.h"

#include <fmt/format.h>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/arithmetic.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {

Result<Value> Evaluator::evaluate(const Expression& node, Scope& scope) {
  const DepthGuard guard(runtime_);
  const Position outer = runtime_.position;
  runtime_.position = node.position;
  TRY(guard.status());
  TRY(runtime_.charge());
  Result<Value> value = evaluate_node(node, scope);
  if (value.ok()) runtime_.position = outer;
  return value;
}

Result<Value> Evaluator::evaluate_node(const Expression& node, Scope& scope) {
  switch (node.kind) {
    case ExpressionKind::constant:
      return node.value;
    case ExpressionKind::name:
      return evaluate_name(node, scope);
    case ExpressionKind::tuple:
      return Value(runtime_.tuple(TRY(evaluate_all(node.children, scope))));
    case ExpressionKind::list:
      return Value(runtime_.list(TRY(evaluate_all(node.children, scope))));
    case ExpressionKind::dict:
      return evaluate_dict(node, scope);
    case ExpressionKind::attribute:
      return get_attribute(runtime_, TRY(evaluate(*node.children[0], scope)), node.name);
    case ExpressionKind::item:
      return evaluate_item(node, scope);
    case ExpressionKind::slice:
      return runtime_.error("a slice may stand alone in its brackets only");
    case ExpressionKind::call:
      return evaluate_call(node, scope);
    case ExpressionKind::filter:
      return evaluate_filter(node, scope);
    case ExpressionKind::test: {
      const Value input = TRY(evaluate(*node.children[0], scope));
      CallArguments arguments = TRY(evaluate_arguments(*node.arguments, scope));
      return Value(TRY(apply_test(runtime_, node.name, input, arguments)));
    }
    case ExpressionKind::binary:
      return evaluate_binary(node, scope);
    case ExpressionKind::unary:
      return evaluate_unary(node, scope);
    case ExpressionKind::compare:
      return evaluate_compare(node, scope);
    case ExpressionKind::concat:
      return evaluate_concat(node, scope);
    case ExpressionKind::conditional:
      return evaluate_conditional(node, scope);
  }
  return Value();
}

Result<Value> Evaluator::evaluate_name(const Expression& node, Scope& scope) {
  const Value* value = scope.find(node.name);
  if (value != nullptr) return *value;
  return runtime_.undefined(fmt::format("'{}' is undefined", printable(node.name)));
}

Result<std::vector<Value>> Evaluator::evaluate_all(const std::vector<ExpressionPtr>& nodes,
                                                   Scope& scope) {
  std::vector<Value> values;
  values.reserve(nodes.size());
  for (const ExpressionPtr& node : nodes) values.push_back(TRY(evaluate(*node, scope)));
  return values;
}

Result<Value> Evaluator::evaluate_dict(const Expression& node, Scope& scope) {
  auto* dict = runtime_.make<Dict>();
  runtime_.grow(node.children.size() * sizeof(Value));
  for (size_t i = 0; i + 1 < node.children.size(); i += 2) {
    Value key = TRY(evaluate(*node.children[i], scope));
    Value value = TRY(evaluate(*node.children[i + 1], scope));
    if (!hash_of(key)) {
      return runtime_.error(fmt::format("unhashable type: '{}'", key.type_name()));
    }
    dict->set(std::move(key), std::move(value));
  }
  return Value(dict);
}

Result<Value> Evaluator::evaluate_item(const Expression& node, Scope& scope) {
  const Value object = TRY(evaluate(*node.children[0], scope));
  const Expression& key = *node.children[1];
  if (key.kind != ExpressionKind::slice) {
    return get_item(runtime_, object, TRY(evaluate(key, scope)));
  }
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (key.children[i] != nullptr) bounds[i] = TRY(evaluate(*key.children[i], scope));
  }
  return get_slice(runtime_, object, bounds[0], bounds[1], bounds[2]);
}

Result<CallArguments> Evaluator::evaluate_arguments(const Arguments& arguments, Scope& scope) {
  CallArguments values;
  values.positional = TRY(evaluate_all(arguments.positional, scope));
  for (const auto& [name, node] : arguments.named) {
    values.named.emplace_back(name, TRY(evaluate(*node, scope)));
  }
  if (arguments.more_positional != nullptr) {
    const Value more = TRY(evaluate(*arguments.more_positional, scope));
    for (Value& value : TRY(collect(runtime_, more))) values.positional.push_back(std::move(value));
  }
  if (arguments.more_named != nullptr) {
    const Value more = TRY(evaluate(*arguments.more_named, scope));
    if (!more.is(Value::Kind::dict)) {
      return runtime_.error(
          fmt::format("argument after ** must be a mapping, not {}", more.type_name()));
    }
    for (const auto& [key, value] : more.dict()->entries) {
      if (!key.is_string()) return runtime_.error("keywords must be strings");
      values.named.emplace_back(key.bytes(), value);
    }
  }
  return values;
}

Result<Value> Evaluator::call(const Value& callee, CallArguments& arguments) {
  if (callee.is_undefined()) return runtime_.error(callee.undefined());
  if (!callee.is(Value::Kind::special)) {
    return runtime_.error(fmt::format("'{}' object is not callable", callee.type_name()));
  }
  return callee.special()->call(runtime_, arguments);
}

Result<Value> Evaluator::evaluate_call(const Expression& node, Scope& scope) {
  const Expression& callee = *node.children[0];
  // A method of a plain value is called without making an object of it first.
  if (callee.kind == ExpressionKind::attribute) {
    const Value object = TRY(evaluate(*callee.children[0], scope));
    const MethodFunction method = object.is_string()
                                      ? find_string_method(callee.name)
                                      : find_container_method(object.kind(), callee.name);
    if (method != nullptr) {
      CallArguments arguments = TRY(evaluate_arguments(*node.arguments, scope));
      return method(runtime_, object, arguments);
    }
    const Value function = TRY(get_attribute(runtime_, object, callee.name));
    CallArguments arguments = TRY(evaluate_arguments(*node.arguments, scope));
    return call(function, arguments);
  }
  const Value function = TRY(evaluate(callee, scope));
  CallArguments arguments = TRY(evaluate_arguments(*node.arguments, scope));
  return call(function, arguments);
}

Result<Value> Evaluator::evaluate_filter(const Expression& node, Scope& scope) {
  const Value input = TRY(evaluate(*node.children[0], scope));
  CallArguments arguments = TRY(evaluate_arguments(*node.arguments, scope));
  return apply_filter(runtime_, node.name, input, arguments);
}

Result<Value> Evaluator::evaluate_binary(const Expression& node, Scope& scope) {
  Value left = TRY(evaluate(*node.children[0], scope));
  if (node.operation == Operation::logical_and || node.operation == Operation::logical_or) {
    const bool decided = is_truthy(left) == (node.operation == Operation::logical_or);
    return decided ? left : evaluate(*node.children[1], scope);
  }
  const Value right = TRY(evaluate(*node.children[1], scope));
  return arithmetic(runtime_, node.operation, left, right);
}

Result<Value> Evaluator::evaluate_unary(const Expression& node, Scope& scope) {
  const Value value = TRY(evaluate(*node.children[0], scope));
  switch (node.operation) {
    case Operation::logical_not:
      return Value(!is_truthy(value));
    case Operation::negate:
      return negate(runtime_, value);
    default:
      return plus(runtime_, value);
  }
}

Result<Value> Evaluator::evaluate_compare(const Expression& node, Scope& scope) {
  Value left = TRY(evaluate(*node.children[0], scope));
  for (size_t i = 0; i < node.comparisons.size(); ++i) {
    Value right = TRY(evaluate(*node.children[i + 1], scope));
    if (!TRY(holds(runtime_, node.comparisons[i], left, right))) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Evaluator::evaluate_concat(const Expression& node, Scope& scope) {
  TextBuilder out = runtime_.builder();
  for (const ExpressionPtr& child : node.children) {
    const Value part = TRY(evaluate(*child, scope));
    TRY(append_text(runtime_, part, out));
  }
  return runtime_.text(std::move(out));
}

Result<Value> Evaluator::evaluate_conditional(const Expression& node, Scope& scope) {
  const Value condition = TRY(evaluate(*node.children[1], scope));
  if (is_truthy(condition)) return evaluate(*node.children[0], scope);
  if (node.children[2] != nullptr) return evaluate(*node.children[2], scope);
  return runtime_.undefined("the inline if-expression evaluated to false and has no else section");
}

}  // namespace strata::jinja
