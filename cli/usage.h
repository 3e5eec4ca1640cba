// What `strata` says of itself: --help, and the errors of a command line that cannot be read.
//
// Threads: the main thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace strata::cli {

inline constexpr size_t kHelpColumns = 100;

// --help of the program (its commands) or of a command (its options, by groups), at most
// kHelpColumns wide.
std::string help_text(const CLI::App& app);

// What the parser objected to, as INVALID_ARGUMENT that names the word and, where one is near, what
// may have been meant.
Status usage_error(const CLI::App& app, const CLI::ParseError& error);

// The candidate that `word` may be a slip of: at most a third of its characters wrong. Empty if
// none is near; the first of equals.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace strata::cli
