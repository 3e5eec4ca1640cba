#include "runtime/text/jinja/scope.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/evaluator.h"
#include "runtime/text/jinja/iteration.h"

namespace strata::jinja {
namespace {

// loop.cycle and loop.changed, bound to their loop.
struct LoopMethod final : Special {
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime& runtime, CallArguments& arguments) override {
    if (cycles) {
      if (arguments.positional.empty()) return runtime.error("no items for cycling given");
      const size_t index = static_cast<size_t>(loop->index0) % arguments.positional.size();
      return arguments.positional[index];
    }
    const Value value = runtime.tuple(arguments.positional);
    if (loop->last_changed && TRY(equal(runtime, *loop->last_changed, value))) return Value(false);
    loop->last_changed = value;
    return Value(true);
  }

  LoopValue* loop = nullptr;
  bool cycles = false;
};

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [key, value] : scope->variables) {
      if (key == name) return &value;
    }
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old_value] : variables) {
    if (key == name) {
      old_value = std::move(value);
      return;
    }
  }
  variables.emplace_back(name, std::move(value));
}

Scope& Scope::top() {
  Scope* scope = this;
  while (!scope->is_top) scope = scope->parent;
  return *scope;
}

std::string MacroValue::repr() const { return fmt::format("<Macro '{}'>", macro->name); }

Result<bool> MacroValue::attribute(Runtime& runtime, std::string_view name, Value& out) {
  if (name == "name") {
    out = TRY(runtime.text(macro->name));
  } else if (name == "arguments") {
    std::vector<Value> names;
    for (const std::string& parameter : macro->parameters) {
      names.push_back(TRY(runtime.text(parameter)));
    }
    out = runtime.tuple(std::move(names));
  } else if (name == "caller") {
    out = macro->uses_caller;
  } else if (name == "catch_kwargs") {
    out = macro->uses_kwargs;
  } else if (name == "catch_varargs") {
    out = macro->uses_varargs;
  } else {
    return false;
  }
  return true;
}

Result<Value> MacroValue::call(Runtime&, CallArguments& arguments) {
  return evaluator->call_macro(*this, arguments);
}

Status LoopValue::look_ahead(Runtime& runtime) {
  if (ahead) return ok_status();
  Value value;
  if (TRY(source->next(runtime, value))) ahead = std::move(value);
  return ok_status();
}

Result<bool> LoopValue::advance(Runtime& runtime, Value& out) {
  TRY(look_ahead(runtime));
  if (!ahead) return false;
  ++index0;
  previous = std::move(current);
  current = std::move(*ahead);
  ahead.reset();
  out = current;
  return true;
}

Result<int64_t> LoopValue::count(Runtime& runtime) {
  if (known_count) return *known_count;
  // A generator has no length: all that is left is drawn now.
  std::vector<Value> rest = TRY(collect(runtime, static_cast<Special*>(source)));
  known_count = static_cast<int64_t>(rest.size()) + index0 + 1 + (ahead ? 1 : 0);
  source = over(runtime, std::move(rest), "list_iterator");
  return *known_count;
}

Result<bool> LoopValue::attribute(Runtime& runtime, std::string_view name, Value& out) {
  if (name == "index") {
    out = index0 + 1;
  } else if (name == "index0") {
    out = index0;
  } else if (name == "first") {
    out = index0 == 0;
  } else if (name == "last") {
    TRY(look_ahead(runtime));
    out = !ahead.has_value();
  } else if (name == "length") {
    out = TRY(count(runtime));
  } else if (name == "revindex") {
    out = TRY(count(runtime)) - index0;
  } else if (name == "revindex0") {
    out = TRY(count(runtime)) - index0 - 1;
  } else if (name == "depth") {
    out = depth0 + 1;
  } else if (name == "depth0") {
    out = depth0;
  } else if (name == "previtem") {
    out = index0 == 0 ? runtime.undefined("there is no previous item") : previous;
  } else if (name == "nextitem") {
    TRY(look_ahead(runtime));
    out = ahead ? *ahead : runtime.undefined("there is no next item");
  } else if (name == "cycle" || name == "changed") {
    auto* method = runtime.make<LoopMethod>();
    method->loop = this;
    method->cycles = name == "cycle";
    out = static_cast<Special*>(method);
  } else {
    return false;
  }
  return true;
}

Result<Value> LoopValue::call(Runtime& runtime, CallArguments& arguments) {
  if (!statement->recursive) {
    return runtime.error("The loop must have the 'recursive' marker to be called recursively.");
  }
  const Bound bound = TRY(bind(runtime, arguments, {"loop", {"iterable"}, 1}));
  return evaluator->render_loop(*statement, bound[0], *scope, depth0 + 1);
}

std::string FunctionValue::repr() const { return fmt::format("<function {}>", name); }

Result<Value> FunctionValue::call(Runtime& runtime, CallArguments& arguments) {
  return function(runtime, arguments);
}

}  // namespace strata::jinja
