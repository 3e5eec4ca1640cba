// Backslash escapes of string literals, as Python's unicode-escape codec reads them.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace strata::jinja {

// The text of a literal without its quotes.
// Errors: INVALID_ARGUMENT with the escape that is cut short, or names no character.
Result<std::string> unescape(std::string_view literal);

}  // namespace strata::jinja
