// JSON Schema's `format` as regular expressions: what RFC 3339, 4122, 5321, 1123, 2673, 4291, 3986
// and 6901 say that a text can show by its letters alone.
#pragma once

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/grammar/char_dfa.h"

namespace strata::grammar {

// Errors: UNIMPLEMENTED for a format that is not known here, with those that are.
Result<CharDfa> format_dfa(std::string_view format, Budget& budget);

}  // namespace strata::grammar
