// Values as text: Python's str() and repr(), to the letter.
//
// Threads: free functions, any thread.
#pragma once

#include <string>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// The shortest digits that read back as `value`, as Python writes them: "1.0", "1e+16", "inf".
std::string real_repr(double value);

// str(value), appended. Strings keep their origins; containers with foreign strings count as
// foreign where those stand.
// Errors: RESOURCE_EXHAUSTED for nesting or size.
Status append_text(Runtime& runtime, const Value& value, TextBuilder& out);
// repr(value), appended.
Status append_repr(Runtime& runtime, const Value& value, TextBuilder& out);

// str(value): the same string for a string.
Result<TextRef> to_text(Runtime& runtime, const Value& value);
// For messages: a repr() of limited length.
std::string short_repr(Runtime& runtime, const Value& value);

}  // namespace strata::jinja
