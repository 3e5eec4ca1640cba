#include "runtime/gguf/metadata.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"

namespace strata {
namespace {

struct TypeTraits {
  std::string_view name;
  std::string_view phrase;  // in a sentence: "is <phrase>"
  uint64_t bytes;
};

constexpr std::array<TypeTraits, 13> kTypes = {{
    {"u8", "a u8", 1},
    {"i8", "an i8", 1},
    {"u16", "a u16", 2},
    {"i16", "an i16", 2},
    {"u32", "a u32", 4},
    {"i32", "an i32", 4},
    {"f32", "an f32", 4},
    {"bool", "a bool", 1},
    {"string", "a string", 0},
    {"array", "an array", 0},
    {"u64", "a u64", 8},
    {"i64", "an i64", 8},
    {"f64", "an f64", 8},
}};

const TypeTraits& traits(ValueType type) {
  const auto number = static_cast<size_t>(type);
  STRATA_CHECK(number < kTypes.size(), "value types are checked when they are read");
  return kTypes[number];
}

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::string found_phrase(const MetadataValue& value) {
  if (value.is_array()) return fmt::format("an array of {}", traits(value.element_type()).name);
  return std::string(traits(value.type()).phrase);
}

template <typename T>
constexpr std::string_view wanted_phrase() {
  if constexpr (std::is_same_v<T, bool>) {
    return "a bool";
  } else if constexpr (std::is_integral_v<T>) {
    return "an integer";
  } else if constexpr (std::is_floating_point_v<T>) {
    return "a float (f32 or f64)";
  } else {
    return "a string";
  }
}

template <typename T>
bool type_serves(ValueType type) {
  if constexpr (std::is_same_v<T, bool>) {
    return type == ValueType::boolean;
  } else if constexpr (std::is_integral_v<T>) {
    return is_integer_type(type);
  } else if constexpr (std::is_floating_point_v<T>) {
    return type == ValueType::f32 || type == ValueType::f64;
  } else {
    return type == ValueType::string;
  }
}

// Element i as T, or false if it does not fit. Requires: type_serves<T>(element type).
template <typename T>
bool convert(const MetadataValue& value, uint64_t i, T& out) {
  if constexpr (std::is_same_v<T, bool>) {
    out = value.integer(i) != 0;
    return true;
  } else if constexpr (std::is_integral_v<T>) {
    const int64_t wide = value.integer(i);
    if (value.element_type() == ValueType::u64) {
      const auto unsigned_wide = static_cast<uint64_t>(wide);
      out = static_cast<T>(unsigned_wide);
      return std::in_range<T>(unsigned_wide);
    }
    out = static_cast<T>(wide);
    return std::in_range<T>(wide);
  } else if constexpr (std::is_floating_point_v<T>) {
    const double wide = value.floating(i);
    if (std::isfinite(wide) &&
        std::fabs(wide) > static_cast<double>(std::numeric_limits<T>::max())) {
      return false;
    }
    out = static_cast<T>(wide);
    return true;
  } else {
    out = T(value.string(i));
    return true;
  }
}

template <typename T>
std::string range_reason(const MetadataValue& value, uint64_t i) {
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return fmt::format("is {}, must be from {} to {}", value.text(i), std::numeric_limits<T>::min(),
                       std::numeric_limits<T>::max());
  } else {
    return fmt::format("is {}, which is out of range", value.text(i));
  }
}

}  // namespace

std::string_view value_type_name(ValueType type) { return traits(type).name; }
uint64_t value_type_bytes(ValueType type) { return traits(type).bytes; }

bool is_integer_type(ValueType type) {
  switch (type) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::u16:
    case ValueType::i16:
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::u64:
    case ValueType::i64:
      return true;
    default:
      return false;
  }
}

const char* MetadataValue::element(uint64_t i) const {
  STRATA_CHECK(i < count_, "element index within the array");
  return base_ + payload_ + i * traits(element_type_).bytes;
}

std::string_view MetadataValue::string(uint64_t i) const {
  STRATA_CHECK(element_type_ == ValueType::string && i < count_, "a string within the array");
  constexpr uint64_t kLengthBytes = 8;
  if (!is_array()) {
    return {base_ + payload_ + kLengthBytes, static_cast<size_t>(end_ - payload_ - kLengthBytes)};
  }
  const std::vector<uint32_t>& ends = *string_ends_;
  const uint64_t begin = (i == 0 ? 0 : ends[i - 1]) + kLengthBytes;
  return {base_ + payload_ + begin, static_cast<size_t>(ends[i] - begin)};
}

int64_t MetadataValue::integer(uint64_t i) const {
  const char* at = element(i);
  switch (element_type_) {
    case ValueType::u8:
    case ValueType::boolean:
      return load<uint8_t>(at);
    case ValueType::i8:
      return load<int8_t>(at);
    case ValueType::u16:
      return load<uint16_t>(at);
    case ValueType::i16:
      return load<int16_t>(at);
    case ValueType::u32:
      return load<uint32_t>(at);
    case ValueType::i32:
      return load<int32_t>(at);
    case ValueType::u64:
    case ValueType::i64:
      return load<int64_t>(at);
    default:
      check_failed("integer or bool", "the element type is another", __FILE__, __LINE__);
  }
}

double MetadataValue::floating(uint64_t i) const {
  const char* at = element(i);
  if (element_type_ == ValueType::f32) return static_cast<double>(load<float>(at));
  STRATA_CHECK(element_type_ == ValueType::f64, "floating() of a float");
  return load<double>(at);
}

std::string MetadataValue::text(uint64_t i) const {
  switch (element_type_) {
    case ValueType::string:
      return std::string(string(i));
    case ValueType::boolean:
      return integer(i) != 0 ? "true" : "false";
    case ValueType::f32:
      return fmt::format("{}", load<float>(element(i)));
    case ValueType::f64:
      return fmt::format("{}", floating(i));
    case ValueType::u64:
      return fmt::format("{}", load<uint64_t>(element(i)));
    default:
      return fmt::format("{}", integer(i));
  }
}

const MetadataValue* Metadata::find(std::string_view key) const {
  const auto found = index_.find(std::string(key));
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

Result<const MetadataValue*> Metadata::require(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) {
    return not_found(fmt::format("{}: key '{}' is missing", source_, printable(key)));
  }
  return value;
}

Status Metadata::error(std::string_view key, std::string_view reason) const {
  const MetadataValue* value = find(key);
  std::string text = fmt::format("{}: key '{}' {}", source_, printable(key), reason);
  if (value != nullptr) text += fmt::format(" at offset {}", value->file_offset());
  return invalid_argument(std::move(text));
}

template <typename T>
Result<T> Metadata::get(std::string_view key) const {
  const MetadataValue& value = *TRY(require(key));
  if (value.is_array() || !type_serves<T>(value.type())) {
    return error(key, fmt::format("is {}, must be {}", found_phrase(value), wanted_phrase<T>()));
  }
  T out{};
  if (!convert<T>(value, 0, out)) return error(key, range_reason<T>(value, 0));
  return out;
}

template <typename T>
Result<T> Metadata::get_or(std::string_view key, T fallback) const {
  if (!contains(key)) return fallback;
  return get<T>(key);
}

Result<StringArray> Metadata::get_strings(std::string_view key) const {
  const MetadataValue& value = *TRY(require(key));
  if (!value.is_array() || value.element_type() != ValueType::string) {
    return error(key, fmt::format("is {}, must be string array", found_phrase(value)));
  }
  return StringArray(value);
}

template <typename T>
Result<std::vector<T>> Metadata::get_numbers(std::string_view key) const {
  const MetadataValue& value = *TRY(require(key));
  if (!value.is_array() || !type_serves<T>(value.element_type())) {
    return error(key, fmt::format("is {}, must be an array, each element {}", found_phrase(value),
                                  wanted_phrase<T>()));
  }
  std::vector<T> out(static_cast<size_t>(value.count()));
  for (size_t i = 0; i < out.size(); ++i) {
    if (!convert<T>(value, i, out[i])) {
      return error(key, fmt::format("element {} {}", i, range_reason<T>(value, i)));
    }
  }
  return out;
}

#define STRATA_METADATA_SCALAR(T)                              \
  template Result<T> Metadata::get<T>(std::string_view) const; \
  template Result<T> Metadata::get_or<T>(std::string_view, T) const;
#define STRATA_METADATA_NUMBER(T) \
  STRATA_METADATA_SCALAR(T)       \
  template Result<std::vector<T>> Metadata::get_numbers<T>(std::string_view) const;

STRATA_METADATA_SCALAR(bool)
STRATA_METADATA_SCALAR(std::string)
STRATA_METADATA_SCALAR(std::string_view)
STRATA_METADATA_NUMBER(int32_t)
STRATA_METADATA_NUMBER(uint32_t)
STRATA_METADATA_NUMBER(int64_t)
STRATA_METADATA_NUMBER(uint64_t)
STRATA_METADATA_NUMBER(float)
STRATA_METADATA_NUMBER(double)

#undef STRATA_METADATA_NUMBER
#undef STRATA_METADATA_SCALAR

}  // namespace strata
