// The file that tells others where a server listens. Threads: any.
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace strata::cli {

// Whole or not at all, so that whoever waits for the file never reads half an address.
Status write_address_file(const std::string& path, const std::string& address);

}  // namespace strata::cli
