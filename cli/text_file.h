// A small file that a person names on the command line, as text. Threads: any.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace strata::cli {

// Errors: NOT_FOUND and others for a file that cannot be read; INVALID_ARGUMENT for one of more
// than `bytes_max`.
Result<std::string> read_text_file(const std::string& path, size_t bytes_max);

}  // namespace strata::cli
