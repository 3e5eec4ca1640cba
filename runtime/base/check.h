// STRATA_CHECK: a broken invariant prints where and why, and aborts.
//
// For bugs only. Never for input from a file, a peer, a user or for a lack of memory: those are a
// Status (status.h). Always on, in release builds too.
#pragma once

#include <string_view>

namespace strata {

// Prints "file:line: bug: condition is false: message" to standard error and aborts.
[[noreturn]] void check_failed(std::string_view condition, std::string_view message,
                               const char* file, int line);

}  // namespace strata

#define STRATA_CHECK(condition, message)                                               \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::strata::check_failed(#condition, message, __builtin_FILE(), __builtin_LINE()); \
  } while (false)
