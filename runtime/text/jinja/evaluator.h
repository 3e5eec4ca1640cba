// Evaluator: walks the tree of a template and writes its text.
//
// Scopes are Jinja's: `if` has none of its own; each iteration of a loop, macros, blocks and
// `with` have. Recursion is bounded by the runtime's depth, work by its steps.
//
// Threads: one rendering, one thread. The tree must outlive it.
#pragma once

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/scope.h"

namespace strata::jinja {

class Evaluator {
 public:
  explicit Evaluator(Runtime& runtime) : runtime_(runtime) {}

  // Writes the template's text to `out`.
  Status render(const Body& body, Scope& scope, TextBuilder& out);

  // What macros and loops call back.
  Result<Value> call_macro(const MacroValue& macro, CallArguments& arguments);
  Result<Value> render_loop(const Statement& loop, const Value& iterable, Scope& scope,
                            int64_t depth0);

 private:
  // How a body ended.
  enum class Flow : uint8_t { done, break_, continue_ };

  Result<Value> evaluate(const Expression& node, Scope& scope);
  Result<Value> evaluate_node(const Expression& node, Scope& scope);
  Result<Value> evaluate_name(const Expression& node, Scope& scope);
  Result<std::vector<Value>> evaluate_all(const std::vector<ExpressionPtr>& nodes, Scope& scope);
  Result<Value> evaluate_dict(const Expression& node, Scope& scope);
  Result<Value> evaluate_item(const Expression& node, Scope& scope);
  Result<Value> evaluate_call(const Expression& node, Scope& scope);
  Result<Value> evaluate_filter(const Expression& node, Scope& scope);
  Result<Value> evaluate_binary(const Expression& node, Scope& scope);
  Result<Value> evaluate_unary(const Expression& node, Scope& scope);
  Result<Value> evaluate_compare(const Expression& node, Scope& scope);
  Result<Value> evaluate_concat(const Expression& node, Scope& scope);
  Result<Value> evaluate_conditional(const Expression& node, Scope& scope);
  Result<CallArguments> evaluate_arguments(const Arguments& arguments, Scope& scope);
  Result<Value> call(const Value& callee, CallArguments& arguments);
  // The filters of a block, the innermost first, over the block's text.
  Result<Value> apply_chain(const Expression& filter, Value input, Scope& scope);

  Result<Flow> execute(const Body& body, Scope& scope, TextBuilder& out);
  Result<Flow> execute_one(const Statement& statement, Scope& scope, TextBuilder& out);
  Status write_output(const Statement& statement, Scope& scope, TextBuilder& out);
  Result<Flow> execute_if(const Statement& statement, Scope& scope, TextBuilder& out);
  Result<Flow> execute_for(const Statement& statement, Scope& scope, TextBuilder& out);
  Result<Flow> execute_set(const Statement& statement, Scope& scope);
  Result<Flow> execute_set_block(const Statement& statement, Scope& scope);
  Result<Flow> execute_filter_block(const Statement& statement, Scope& scope, TextBuilder& out);
  Result<Flow> execute_with(const Statement& statement, Scope& scope, TextBuilder& out);
  Status execute_call_block(const Statement& statement, Scope& scope, TextBuilder& out);
  Result<Flow> run_loop(const Statement& loop, const Value& iterable, Scope& scope, int64_t depth0,
                        TextBuilder& out);
  Result<Flow> run_iterations(const Statement& loop, LoopValue& state, Scope& scope,
                              TextBuilder& out, bool& completed);
  // The elements for which the loop's condition holds.
  Iterator* filtered(const Statement& loop, Iterator* source, Scope& scope);

  Status assign(const Target& target, const Value& value, Scope& scope);
  Status bind_parameters(const MacroValue& macro, CallArguments& arguments, Scope& scope);
  // What a macro takes beyond its parameters: caller, kwargs, varargs.
  Status bind_rest(const Macro& macro, CallArguments& arguments, bool caller_is_bound,
                   Scope& scope);
  MacroValue* make_macro(const Macro& macro, Scope& scope);
  Scope* child_of(Scope& scope);
  Status check(const TextBuilder& out) const;

  Runtime& runtime_;
};

}  // namespace strata::jinja
