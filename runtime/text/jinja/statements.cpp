// The statements of the evaluator.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {

Status Evaluator::render(const Body& body, Scope& scope, TextBuilder& out) {
  TRY(execute(body, scope, out));
  return check(out);
}

Status Evaluator::check(const TextBuilder& out) const {
  if (!out.overflowed()) return ok_status();
  return resource_exhausted(at_position(
      runtime_.position,
      fmt::format("the text grows beyond {} MiB", runtime_.limits().text_bytes_max >> 20)));
}

Scope* Evaluator::child_of(Scope& scope) {
  auto* child = runtime_.make<Scope>();
  child->parent = &scope;
  return child;
}

Result<Evaluator::Flow> Evaluator::execute(const Body& body, Scope& scope, TextBuilder& out) {
  const DepthGuard guard(runtime_);
  TRY(guard.status());
  for (const auto& statement : body) {
    const Flow flow = TRY(execute_one(*statement, scope, out));
    if (flow != Flow::done) return flow;
  }
  TRY(check(out));
  return Flow::done;
}

Result<Evaluator::Flow> Evaluator::execute_one(const Statement& statement, Scope& scope,
                                               TextBuilder& out) {
  runtime_.position = statement.position;
  TRY(runtime_.charge());
  switch (statement.kind) {
    case StatementKind::data:
      TRY(runtime_.charge_bytes(statement.text->bytes.size()));
      out.append(*statement.text);
      return Flow::done;
    case StatementKind::output:
      TRY(write_output(statement, scope, out));
      return Flow::done;
    case StatementKind::if_:
      return execute_if(statement, scope, out);
    case StatementKind::for_:
      return execute_for(statement, scope, out);
    case StatementKind::set:
      return execute_set(statement, scope);
    case StatementKind::set_block:
      return execute_set_block(statement, scope);
    case StatementKind::macro:
      scope.set(statement.macro->name, static_cast<Special*>(make_macro(*statement.macro, scope)));
      return Flow::done;
    case StatementKind::call_block:
      TRY(execute_call_block(statement, scope, out));
      return Flow::done;
    case StatementKind::filter_block:
      return execute_filter_block(statement, scope, out);
    case StatementKind::with:
      return execute_with(statement, scope, out);
    case StatementKind::block:
      return execute(statement.bodies[0], *child_of(scope.top()), out);
    case StatementKind::scope:
      return execute(statement.bodies[0], *child_of(scope), out);
    case StatementKind::break_:
      return Flow::break_;
    case StatementKind::continue_:
      return Flow::continue_;
  }
  return Flow::done;
}

Status Evaluator::write_output(const Statement& statement, Scope& scope, TextBuilder& out) {
  for (const ExpressionPtr& node : statement.expressions) {
    const Value value = TRY(evaluate(*node, scope));
    TRY(append_text(runtime_, value, out));
  }
  return ok_status();
}

Result<Evaluator::Flow> Evaluator::execute_if(const Statement& statement, Scope& scope,
                                              TextBuilder& out) {
  for (size_t i = 0; i < statement.expressions.size(); ++i) {
    const Value condition = TRY(evaluate(*statement.expressions[i], scope));
    if (is_truthy(condition)) return execute(statement.bodies[i], scope, out);
  }
  if (statement.bodies.size() > statement.expressions.size()) {
    return execute(statement.bodies.back(), scope, out);
  }
  return Flow::done;
}

Result<Evaluator::Flow> Evaluator::execute_set(const Statement& statement, Scope& scope) {
  const Value value = TRY(evaluate(*statement.expressions[0], scope));
  TRY(assign(statement.targets[0], value, scope));
  return Flow::done;
}

Result<Evaluator::Flow> Evaluator::execute_set_block(const Statement& statement, Scope& scope) {
  TextBuilder text = runtime_.builder();
  const Flow flow = TRY(execute(statement.bodies[0], *child_of(scope), text));
  if (flow != Flow::done) return flow;
  Value value = TRY(runtime_.text(std::move(text)));
  if (statement.expressions[0] != nullptr) {
    value = TRY(apply_chain(*statement.expressions[0], std::move(value), scope));
  }
  TRY(assign(statement.targets[0], value, scope));
  return Flow::done;
}

Result<Evaluator::Flow> Evaluator::execute_filter_block(const Statement& statement, Scope& scope,
                                                        TextBuilder& out) {
  TextBuilder text = runtime_.builder();
  Scope& inner = *child_of(scope);
  const Flow flow = TRY(execute(statement.bodies[0], inner, text));
  if (flow != Flow::done) return flow;
  Value value = TRY(runtime_.text(std::move(text)));
  value = TRY(apply_chain(*statement.expressions[0], std::move(value), inner));
  TRY(append_text(runtime_, value, out));
  return Flow::done;
}

Result<Value> Evaluator::apply_chain(const Expression& filter, Value input, Scope& scope) {
  const DepthGuard guard(runtime_);
  TRY(guard.status());
  if (filter.children[0] != nullptr) {
    input = TRY(apply_chain(*filter.children[0], std::move(input), scope));
  }
  runtime_.position = filter.position;
  CallArguments arguments = TRY(evaluate_arguments(*filter.arguments, scope));
  return apply_filter(runtime_, filter.name, input, arguments);
}

Result<Evaluator::Flow> Evaluator::execute_with(const Statement& statement, Scope& scope,
                                                TextBuilder& out) {
  Scope& inner = *child_of(scope);
  for (size_t i = 0; i < statement.targets.size(); ++i) {
    const Value value = TRY(evaluate(*statement.expressions[i], scope));
    TRY(assign(statement.targets[i], value, inner));
  }
  return execute(statement.bodies[0], inner, out);
}

MacroValue* Evaluator::make_macro(const Macro& macro, Scope& scope) {
  auto* value = runtime_.make<MacroValue>();
  value->evaluator = this;
  value->macro = &macro;
  value->closure = &scope;
  for (Scope* s = &scope; s != nullptr; s = s->parent) s->captured = true;
  return value;
}

Status Evaluator::execute_call_block(const Statement& statement, Scope& scope, TextBuilder& out) {
  const Expression& call_node = *statement.expressions[0];
  const Value callee = TRY(evaluate(*call_node.children[0], scope));
  CallArguments arguments = TRY(evaluate_arguments(*call_node.arguments, scope));
  arguments.named.emplace_back("caller",
                               static_cast<Special*>(make_macro(*statement.macro, scope)));
  runtime_.position = call_node.position;
  const Value value = TRY(call(callee, arguments));
  return append_text(runtime_, value, out);
}

Result<Value> Evaluator::call_macro(const MacroValue& macro, CallArguments& arguments) {
  const DepthGuard guard(runtime_);
  TRY(guard.status());
  const Position outer = runtime_.position;
  Scope& scope = *child_of(*macro.closure);
  TRY(bind_parameters(macro, arguments, scope));
  TextBuilder out = runtime_.builder();
  TRY(execute(macro.macro->body, scope, out));
  runtime_.position = outer;
  return runtime_.text(std::move(out));
}

Status Evaluator::bind_parameters(const MacroValue& value, CallArguments& arguments, Scope& scope) {
  const Macro& macro = *value.macro;
  const size_t count = macro.parameters.size();
  const size_t first_default = count - macro.defaults.size();
  bool caller_is_bound = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = macro.parameters[i];
    caller_is_bound |= name == "caller";
    if (i < arguments.positional.size()) {
      scope.set(name, arguments.positional[i]);
      continue;
    }
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& entry) { return entry.first == name; });
    if (named != arguments.named.end()) {
      scope.set(name, named->second);
      arguments.named.erase(named);
    } else if (i >= first_default) {
      scope.set(name, TRY(evaluate(*macro.defaults[i - first_default], scope)));
    } else {
      scope.set(name, runtime_.undefined(fmt::format("parameter '{}' was not provided", name)));
    }
  }
  return bind_rest(macro, arguments, caller_is_bound, scope);
}

Status Evaluator::bind_rest(const Macro& macro, CallArguments& arguments, bool caller_is_bound,
                            Scope& scope) {
  const size_t count = macro.parameters.size();
  const auto caller = std::find_if(arguments.named.begin(), arguments.named.end(),
                                   [](const auto& entry) { return entry.first == "caller"; });
  if (macro.uses_caller && !caller_is_bound) {
    if (caller != arguments.named.end()) {
      scope.set("caller", caller->second);
      arguments.named.erase(caller);
    } else {
      scope.set("caller", runtime_.undefined("No caller defined"));
    }
  }
  if (macro.uses_kwargs) {
    auto* rest = runtime_.make<Dict>();
    for (const auto& [name, value] : arguments.named) {
      rest->set(TRY(runtime_.text(std::string(name))), value);
    }
    scope.set("kwargs", rest);
  } else if (!arguments.named.empty()) {
    const std::string& name = arguments.named[0].first;
    return runtime_.error(
        fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, printable(name)));
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < arguments.positional.size(); ++i) {
      rest.push_back(arguments.positional[i]);
    }
    scope.set("varargs", runtime_.tuple(std::move(rest)));
  } else if (arguments.positional.size() > count) {
    return runtime_.error(
        fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, count));
  }
  return ok_status();
}

Status Evaluator::assign(const Target& target, const Value& value, Scope& scope) {
  runtime_.position = target.position;
  if (target.is_tuple) {
    if (!is_iterable(value)) {
      return runtime_.error(fmt::format("cannot unpack non-iterable {} object", value.type_name()));
    }
    const std::vector<Value> parts = TRY(collect(runtime_, value));
    const size_t wanted = target.parts.size();
    if (parts.size() > wanted) {
      return runtime_.error(fmt::format("too many values to unpack (expected {})", wanted));
    }
    if (parts.size() < wanted) {
      return runtime_.error(
          fmt::format("not enough values to unpack (expected {}, got {})", wanted, parts.size()));
    }
    for (size_t i = 0; i < wanted; ++i) TRY(assign(target.parts[i], parts[i], scope));
    return ok_status();
  }
  if (target.attribute.empty()) {
    scope.set(target.name, value);
    return ok_status();
  }
  const Value* object = scope.find(target.name);
  auto* names = object != nullptr ? object->as<Namespace>() : nullptr;
  if (names == nullptr) {
    return runtime_.error("cannot assign attribute on non-namespace object");
  }
  runtime_.grow(2 * sizeof(Value));
  names->attributes->set(TRY(runtime_.text(target.attribute)), value);
  return ok_status();
}

Iterator* Evaluator::filtered(const Statement& loop, Iterator* source, Scope& scope) {
  return lazy(runtime_,
              [this, &loop, source, &scope](Runtime& runtime, Value& out) -> Result<bool> {
                while (TRY(source->next(runtime, out))) {
                  Scope& inner = *child_of(scope);
                  TRY(assign(loop.targets[0], out, inner));
                  const Value condition = TRY(evaluate(*loop.expressions[1], inner));
                  if (is_truthy(condition)) return true;
                }
                return false;
              });
}

Result<Evaluator::Flow> Evaluator::execute_for(const Statement& statement, Scope& scope,
                                               TextBuilder& out) {
  const Value iterable = TRY(evaluate(*statement.expressions[0], scope));
  if (!statement.recursive) return run_loop(statement, iterable, scope, 0, out);
  const Value text = TRY(render_loop(statement, iterable, scope, 0));
  TRY(append_text(runtime_, text, out));
  return Flow::done;
}

Result<Value> Evaluator::render_loop(const Statement& loop, const Value& iterable, Scope& scope,
                                     int64_t depth0) {
  const DepthGuard guard(runtime_);
  TRY(guard.status());
  const Position outer = runtime_.position;
  TextBuilder out = runtime_.builder();
  TRY(run_loop(loop, iterable, scope, depth0, out));
  runtime_.position = outer;
  return runtime_.text(std::move(out));
}

Result<Evaluator::Flow> Evaluator::run_loop(const Statement& loop, const Value& iterable,
                                            Scope& scope, int64_t depth0, TextBuilder& out) {
  auto* state = runtime_.make<LoopValue>();
  state->evaluator = this;
  state->statement = &loop;
  state->scope = &scope;
  state->depth0 = depth0;
  state->source = TRY(iterate(runtime_, iterable));
  if (loop.expressions[1] != nullptr) {
    state->source = filtered(loop, state->source, scope);
  } else if (const std::optional<size_t> length = length_of(iterable)) {
    state->known_count = static_cast<int64_t>(*length);
  }
  bool completed = false;
  TRY(run_iterations(loop, *state, scope, out, completed));
  // As in Jinja: the else runs unless some iteration came to its end, so it also runs after a
  // break in the first.
  if (!completed && loop.bodies.size() > 1) {
    return execute(loop.bodies[1], *child_of(scope), out);
  }
  return Flow::done;
}

Result<Evaluator::Flow> Evaluator::run_iterations(const Statement& loop, LoopValue& state,
                                                  Scope& scope, TextBuilder& out, bool& completed) {
  Scope* inner = nullptr;
  Value item;
  while (TRY(state.advance(runtime_, item))) {
    if (inner == nullptr || inner->captured) {
      inner = child_of(scope);
    } else {
      inner->variables.clear();
    }
    if (loop.uses_loop) inner->set("loop", static_cast<Special*>(&state));
    TRY(assign(loop.targets[0], item, *inner));
    const Flow flow = TRY(execute(loop.bodies[0], *inner, out));
    if (flow == Flow::break_) break;
    if (flow == Flow::done) completed = true;
  }
  return Flow::done;
}

}  // namespace strata::jinja
