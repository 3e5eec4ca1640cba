// The keywords of one schema object, read and checked: unknown ones, and wrong values of known
// ones, are errors that name the keyword and its place.
//
// Supported (draft 2020-12): type enum const $ref $defs $anchor allOf anyOf oneOf; minimum maximum
// exclusiveMinimum exclusiveMaximum multipleOf; minLength maxLength pattern format; prefixItems
// items minItems maxItems; properties required additionalProperties patternProperties propertyNames
// minProperties maxProperties dependentRequired. Annotations are read over: title, description,
// default, examples, deprecated, readOnly, writeOnly, $comment, contentEncoding, contentMediaType,
// and names that begin with "x-".
//
// Source: https://json-schema.org/draft/2020-12/json-schema-validation
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/decimal.h"
#include "runtime/grammar/json_document.h"
#include "runtime/grammar/pda.h"

namespace strata::grammar {

// Bits of `types`.
enum TypeBit : uint8_t {
  kTypeNull = 1,
  kTypeBoolean = 2,
  kTypeNumber = 4,
  kTypeString = 8,
  kTypeArray = 16,
  kTypeObject = 32,
  kTypeAll = 63,
};

struct Keywords {
  bool never = false;  // the schema `false`
  uint8_t types = kTypeAll;
  bool integer = false;  // of the numbers, only these

  std::optional<JsonId> ref;  // the schema it leads to
  std::vector<JsonId> all_of;
  std::vector<JsonId> any_of;  // empty: none given
  std::vector<JsonId> one_of;
  std::optional<std::vector<JsonId>> values;  // of enum, or the one of const

  std::optional<Decimal> low;
  std::optional<Decimal> high;
  bool low_excluded = false;
  bool high_excluded = false;
  std::optional<Decimal> multiple_of;

  uint32_t length_min = 0;
  uint32_t length_max = kUnlimited;
  std::optional<std::string> pattern;
  std::optional<std::string> format;

  std::vector<JsonId> prefix_items;
  std::optional<JsonId> items;
  uint32_t items_min = 0;
  uint32_t items_max = kUnlimited;

  std::vector<std::pair<std::string, JsonId>> properties;
  std::vector<std::pair<std::string, JsonId>> pattern_properties;
  std::optional<JsonId> additional;
  std::optional<JsonId> property_names;
  std::vector<std::string> required;
  std::vector<std::pair<std::string, std::vector<std::string>>> dependents;
  uint32_t members_min = 0;
  uint32_t members_max = kUnlimited;
};

// Errors: INVALID_ARGUMENT or UNIMPLEMENTED, with "schema at #/path".
Result<Keywords> read_keywords(const JsonDocument& schema, JsonId node);

}  // namespace strata::grammar
