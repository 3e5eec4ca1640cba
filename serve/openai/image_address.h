// Whether the address of an image is one that a server may ever be asked to fetch. Nothing is
// fetched here, and no name is looked up.
//
// Threads: free functions, any thread.
#pragma once

#include <string_view>

#include "runtime/base/status.h"

namespace strata::serve {

// Errors: INVALID_ARGUMENT for anything but data:, http: and https:, and for hosts that are this
// machine's or its network's own.
Status check_image_address(std::string_view address);

}  // namespace strata::serve
