// The secret that every member and client of a cluster shows, and where it comes from.
//
// Never on the command line, which others can read. On loopback nobody has to choose one: the
// coordinator makes a random token in a file that only its user can read, and workers and clients
// of the same user find it there. Beyond loopback somebody has to hand the token over, by file or
// environment.
//
// Threads: functions may be called from any thread.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace strata::remote {

// 1 to 256 printable ASCII characters without spaces.
Status check_token(std::string_view token);

// True if the two are equal; takes the same time wherever they differ.
bool tokens_equal(std::string_view a, std::string_view b);

// Where a token may come from, in this order. The command line fills it (cli reads the
// environment, nothing else does).
struct TokenSource {
  std::string file;         // --token-file; empty: not given
  std::string environment;  // the value of STRATA_TOKEN; empty: not set
  // The folder of the default file: $XDG_RUNTIME_DIR/strata, else ~/.cache/strata.
  std::string default_folder;
};

// The default folder from the values of XDG_RUNTIME_DIR, XDG_CACHE_HOME and HOME (each may be
// empty).
std::string default_token_folder(std::string_view xdg_runtime_dir, std::string_view xdg_cache_home,
                                 std::string_view home);

// The token by file or environment, else that of the default file, "<default_folder>/token".
// `create` (the coordinator) makes the default file, with 64 random hex digits and mode 0600, if
// there is none; one that exists is kept, so that a restarted coordinator knows its workers.
// Errors: NOT_FOUND with where it looked and what to do; FAILED_PRECONDITION where there is nowhere
// to look; PERMISSION_DENIED for a default file that
// others can read or write or that belongs to another user; INVALID_ARGUMENT for a token that is
// none.
Result<std::string> load_token(const TokenSource& source, bool create);

}  // namespace strata::remote
