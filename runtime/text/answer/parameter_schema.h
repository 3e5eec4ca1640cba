// What the syntaxes with parameters outside of JSON need to know of a parameter's schema.
//
// Threads: free functions, any thread.
#pragma once

#include <nlohmann/json.hpp>

namespace strata {

// Such a parameter stands in the call as it is, every other one as JSON.
inline bool is_text_parameter(const nlohmann::ordered_json& schema) {
  return schema.is_object() && schema.contains("type") && schema["type"] == "string";
}

}  // namespace strata
