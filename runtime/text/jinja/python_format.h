// "..." % values and "...".format(values).
//
// Threads: free functions, any thread.
#pragma once

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// text % values; a tuple gives several values, a dictionary those of %(name)s.
// Errors: as Python's TypeError and ValueError for values that are missing, left over or of a
// wrong type.
Result<Value> format_percent(Runtime& runtime, const Text& text, const Value& values);

// text.format(*positional, **named).
// Errors: as Python's IndexError, KeyError and ValueError.
Result<Value> format_braces(Runtime& runtime, const Text& text, const CallArguments& arguments);

}  // namespace strata::jinja
