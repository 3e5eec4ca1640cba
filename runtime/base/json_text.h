// What JSON texts need before and after the library (nlohmann-json).
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace strata {

// The library takes a NUL byte for the text's end. Errors: INVALID_ARGUMENT "<what>: no JSON at
// byte N: a NUL byte".
Status check_no_nul(std::string_view json, std::string_view what);
// Before the library builds a tree, whose printing is recursive. Errors: INVALID_ARGUMENT
// "<what> nest deeper than 200"; those of check_no_nul().
Status check_nesting(std::string_view json, std::string_view what);

// The value on one line. Bytes that are no UTF-8, such as a model's, become U+FFFD: JSON cannot
// hold them.
template <typename Json>
std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace strata
