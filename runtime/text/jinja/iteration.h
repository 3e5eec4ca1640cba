// Walking over values: lists, strings, dictionaries, ranges, lazy filters.
//
// Threads: as the rendering that the values belong to.
#pragma once

#include <functional>
#include <vector>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// Errors: "'int' object is not iterable". Undefined values have no elements.
Result<Iterator*> iterate(Runtime& runtime, const Value& value);
bool is_iterable(const Value& value);

// All that is left.
// Errors: those of iterate() and of the iterator; RESOURCE_EXHAUSTED for too many.
Result<std::vector<Value>> collect(Runtime& runtime, const Value& value);

// An iterator from a function, for lazy filters: it sets the value and returns true, or false at
// the end.
using NextFunction = std::function<Result<bool>(Runtime&, Value&)>;
Iterator* lazy(Runtime& runtime, NextFunction next);
// One over values that are already there; `type_name` is what Python calls it.
Iterator* over(Runtime& runtime, std::vector<Value> values, std::string_view type_name);

}  // namespace strata::jinja
