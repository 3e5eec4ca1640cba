// One JSON value as a line of output. Threads: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace strata::cli {

// Bytes that are no UTF-8, such as a model's, become U+FFFD: JSON cannot hold them.
template <typename Json>
std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace strata::cli
