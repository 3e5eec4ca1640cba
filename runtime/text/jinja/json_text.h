// Values as JSON and JSON as values: Python's json.dumps() for `tojson`, and the input of a
// rendering.
//
// Threads: free functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

// The parameters of json.dumps() with transformers' defaults.
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; none for a single line
  std::string item_separator = ", ";  // "," where there is an indent
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Appends json.dumps(value). Foreign strings and keys stay marked as such.
// Errors: "Object of type Undefined is not JSON serializable"; RESOURCE_EXHAUSTED for nesting.
Status append_json(Runtime& runtime, const Value& value, const JsonStyle& style, TextBuilder& out);

// A JSON text as a value whose strings all count as foreign. Objects keep their order, integers
// their digits.
// Errors: INVALID_ARGUMENT naming `what` and the place for malformed text, and nesting beyond 200.
Result<Value> parse_json(Runtime& runtime, std::string_view json, std::string_view what);

}  // namespace strata::jinja
