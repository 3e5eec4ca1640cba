// Python's ==, hash(), <, truth and len() over values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "runtime/text/jinja/runtime.h"
#include "runtime/text/jinja/value.h"

namespace strata::jinja {

// Numbers by value (1 == 1.0 == True), containers by elements; objects are equal to themselves
// only. Errors: RESOURCE_EXHAUSTED for values that share parts so often that the work has no end.
Result<bool> equal(Runtime& runtime, const Value& a, const Value& b);
// The same for keys and small values. Beyond a fixed depth or amount of work they count as
// different.
bool equals(const Value& a, const Value& b);

// None if the value cannot be a key: lists and dictionaries, and tuples with one in them. Looks at
// the outer levels of tuples only.
std::optional<uint64_t> hash_of(const Value& value);

// Errors: as Python's TypeError for values that have no order, and for undefined ones.
Result<std::partial_ordering> compare(Runtime& runtime, const Value& a, const Value& b,
                                      std::string_view operator_name);

bool is_truthy(const Value& value);

// Elements or characters; none where Python's len() fails.
std::optional<size_t> length_of(const Value& value);

}  // namespace strata::jinja
