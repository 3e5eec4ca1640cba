// Source text to syntax tree.
//
// The grammar is Jinja's, with the tags that transformers enables: for, if, set, macro, call,
// filter, with, block, raw, break, continue, generation, and autoescape false. Templates that would
// load others (include, import, extends) are refused, as there is nothing to load from.
//
// Threads: free functions, any thread.
#pragma once

#include <string_view>

#include "runtime/base/status.h"
#include "runtime/text/jinja/ast.h"

namespace strata::jinja {

// Errors: INVALID_ARGUMENT "line L, column C: ..." with what was found and what was expected;
// RESOURCE_EXHAUSTED for nesting beyond a fixed depth.
Result<Body> parse(std::string_view source);

}  // namespace strata::jinja
