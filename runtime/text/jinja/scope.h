// Variables of a rendering, and the objects that templates call: macros, loops, functions.
//
// Threads: one rendering, one thread.
#pragma once

#include <ctime>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

class Evaluator;

// A scope sees the variables of those around it; assignments stay in it. Macros keep the scopes
// that they were defined in.
struct Scope final : Object {
  std::string_view type_name() const override { return "scope"; }
  // Null if no scope has the name.
  const Value* find(std::string_view name) const;
  // Requires: the name's bytes outlive the rendering.
  void set(std::string_view name, Value value);
  // The outermost scope of the template: what named blocks see.
  Scope& top();

  Scope* parent = nullptr;
  bool is_top = false;
  bool captured = false;  // a macro holds it: never used again for another iteration
  std::vector<std::pair<std::string_view, Value>> variables;
};

// What `{% macro %}` and `{% call %}` define.
struct MacroValue final : Special {
  std::string_view type_name() const override { return "Macro"; }
  std::string repr() const override;
  bool is_callable() const override { return true; }
  Result<bool> attribute(Runtime& runtime, std::string_view name, Value& out) override;
  Result<Value> call(Runtime& runtime, CallArguments& arguments) override;

  Evaluator* evaluator = nullptr;
  const Macro* macro = nullptr;
  Scope* closure = nullptr;
};

// The variable `loop`, which is also what the loop draws its elements from.
struct LoopValue final : Special {
  std::string_view type_name() const override { return "LoopContext"; }
  bool is_callable() const override { return true; }
  Result<bool> attribute(Runtime& runtime, std::string_view name, Value& out) override;
  Result<Value> call(Runtime& runtime, CallArguments& arguments) override;

  // False at the end.
  Result<bool> advance(Runtime& runtime, Value& out);
  // Sets ahead_ if there is a next element.
  Status look_ahead(Runtime& runtime);
  Result<int64_t> count(Runtime& runtime);

  Evaluator* evaluator = nullptr;
  const Statement* statement = nullptr;  // to render the body again, if recursive
  Scope* scope = nullptr;
  Iterator* source = nullptr;
  std::optional<int64_t> known_count;
  int64_t index0 = -1;
  int64_t depth0 = 0;
  std::optional<Value> ahead;
  Value previous;
  Value current;
  std::optional<Value> last_changed;
};

// A function of the environment, such as range().
struct FunctionValue final : Special {
  std::string_view type_name() const override { return "function"; }
  std::string repr() const override;
  bool is_callable() const override { return true; }
  Result<Value> call(Runtime& runtime, CallArguments& arguments) override;

  std::string_view name;
  std::function<Result<Value>(Runtime&, CallArguments&)> function;
};

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
// `now`: the local time that strftime_now() writes.
void add_globals(Runtime& runtime, Scope& scope, const std::tm& now, int64_t now_microseconds);

}  // namespace strata::jinja
