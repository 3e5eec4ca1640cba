// One JSON value as a line of output. Threads: any.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/base/json_text.h"

namespace strata::cli {

template <typename Json>
std::string json_line(const Json& value) {
  return dump_json(value) + "\n";
}

}  // namespace strata::cli
