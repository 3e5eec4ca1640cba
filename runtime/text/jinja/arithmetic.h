// Python's operators over values: + - * / // % **, comparisons and `in`.
//
// Threads: free functions, any thread.
#pragma once

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// Requires: an arithmetic operation (add to power).
// Errors: as Python's TypeError, ZeroDivisionError and OverflowError; for undefined operands the
// sentence of the undefined value.
Result<Value> arithmetic(Runtime& runtime, Operation operation, const Value& left,
                         const Value& right);

// -value and +value.
Result<Value> negate(Runtime& runtime, const Value& value);
Result<Value> plus(Runtime& runtime, const Value& value);

// left < right and the like, `in` among them. Requires: a comparison (equal to not_in).
// Errors: as Python's TypeError.
Result<bool> holds(Runtime& runtime, Operation comparison, const Value& left, const Value& right);
// item in container.
Result<bool> contains(Runtime& runtime, const Value& container, const Value& item);

// Python's round(): to even at ties of the exact decimal value.
double round_to(double value, int64_t digits);

// float // and %.
double floor_modulo(double a, double b);

// The text with & < > " ' replaced by entities, unless it is marked safe.
Result<Value> escaped(Runtime& runtime, const Value& value);

}  // namespace strata::jinja
