// A request's body as JSON, with what a plain parser lets pass refused: names that come twice,
// depth, size, numbers beyond what a double holds, text that is no UTF-8.
//
// Threads: free functions, any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "runtime/base/status.h"

namespace strata::serve {

using Json = nlohmann::ordered_json;

// Errors: INVALID_ARGUMENT with the place in the text; also for a body that is no object.
Result<Json> parse_json_object(std::string_view text);

}  // namespace strata::serve
