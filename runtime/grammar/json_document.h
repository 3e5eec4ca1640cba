// A parsed JSON text that keeps what schemas need and a plain tree of values would lose: member
// order, numbers as they are written, where each value stands, and whether a name came twice.
//
// Threads: immutable once parsed; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace strata::grammar {

using JsonId = uint32_t;

struct JsonValue {
  enum class Kind : uint8_t { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  bool boolean = false;
  std::string text;               // of a string; of a number as written
  std::vector<JsonId> children;   // elements, or members' values
  std::vector<std::string> keys;  // of an object, beside children
  std::vector<uint32_t> by_key;   // places of these, by name ascending
  JsonId parent = 0;
  uint32_t place = 0;  // among the parent's children
};

class JsonDocument {
 public:
  // `what` names the text in errors. Errors: INVALID_ARGUMENT for what is no JSON, nests deeper
  // than 200 levels, has a name twice in one object, or more than 200,000 values.
  static Result<JsonDocument> parse(std::string_view text, std::string_view what);

  static constexpr JsonId kRoot = 0;
  const JsonValue& at(JsonId id) const { return values_[id]; }
  size_t size() const { return values_.size(); }
  // The member of an object; none for other kinds.
  std::optional<JsonId> find(JsonId object, std::string_view key) const;
  // As in a JSON pointer with '#': "#/properties/a~1b/items".
  std::string path(JsonId id) const;
  // The value that a pointer such as "/$defs/x" leads to from the root.
  std::optional<JsonId> resolve(std::string_view pointer) const;
  // The object whose "$anchor" is that name; the first one in the text.
  std::optional<JsonId> find_anchor(std::string_view name) const;

 private:
  friend class JsonBuilder;
  std::vector<JsonValue> values_;
  std::map<std::string, JsonId, std::less<>> anchors_;
};

}  // namespace strata::grammar
