#include "serve/openai/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"

namespace strata::serve {
namespace {

// A value in a message, short.
std::string shown(const Json& value) {
  if (value.is_array() || value.is_object()) return fmt::format("a JSON {}", value.type_name());
  return printable(dump_json(value), 40);
}

}  // namespace

const Json* Fields::find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

Status Fields::wrong(std::string_view name, std::string_view what, std::string_view hint) const {
  param_ = prefix_ + std::string(name);
  return invalid_argument(fmt::format("{} {}", param_, what), std::string(hint));
}

Status Fields::wrong_type(std::string_view name, std::string_view wanted) const {
  return wrong(name, fmt::format("is {}, must be {}", shown(object_.at(name)), wanted));
}

Result<std::optional<bool>> Fields::boolean(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<bool>();
  if (!value->is_boolean()) return wrong_type(name, "true or false");
  return std::optional(value->get<bool>());
}

Result<std::optional<double>> Fields::number(std::string_view name, double low, double high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<double>();
  const bool fits =
      value->is_number() && value->get<double>() >= low && value->get<double>() <= high;
  if (!fits) return wrong_type(name, fmt::format("a number from {} to {}", low, high));
  return std::optional(value->get<double>());
}

Result<std::optional<int64_t>> Fields::integer(std::string_view name, int64_t low,
                                               int64_t high) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<int64_t>();
  std::optional<int64_t> whole;
  if (value->is_number_unsigned()) {
    const uint64_t number = value->get<uint64_t>();
    if (number <= static_cast<uint64_t>(INT64_MAX)) whole = static_cast<int64_t>(number);
  } else if (value->is_number_integer()) {
    whole = value->get<int64_t>();
  } else if (value->is_number_float()) {
    const double number = value->get<double>();
    constexpr double kExact = 9007199254740992.0;  // 2^53
    if (std::abs(number) <= kExact && number == std::floor(number)) {
      whole = static_cast<int64_t>(number);
    }
  }
  if (!whole || *whole < low || *whole > high) {
    return wrong_type(name, fmt::format("a whole number from {} to {}", low, high));
  }
  return whole;
}

Result<std::optional<std::string>> Fields::text(std::string_view name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (!value->is_string()) return wrong_type(name, "a string");
  return std::optional(value->get<std::string>());
}

Result<std::optional<std::string>> Fields::word(
    std::string_view name, std::initializer_list<std::string_view> words) const {
  const Json* value = find(name);
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) {
    const auto& given = value->get_ref<const std::string&>();
    if (std::find(words.begin(), words.end(), given) != words.end()) return std::optional(given);
  }
  std::string list;
  for (const std::string_view word : words)
    list += fmt::format("{}\"{}\"", list.empty() ? "" : ", ", word);
  return wrong_type(name, "one of " + list);
}

Result<const Json*> Fields::object(std::string_view name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_object()) return wrong_type(name, "an object");
  return value;
}

Result<const Json*> Fields::array(std::string_view name) const {
  const Json* value = find(name);
  if (value != nullptr && !value->is_array()) return wrong_type(name, "a list");
  return value;
}

Status Fields::unsupported(std::string_view name, std::string_view hint) const {
  return wrong(name, "is not supported yet", hint);
}

Status Fields::only(std::string_view name, std::initializer_list<double> neutral) const {
  const Json* value = find(name);
  if (value == nullptr) return ok_status();
  if (!value->is_number()) return wrong_type(name, "a number");
  const double number = value->get<double>();
  if (std::find(neutral.begin(), neutral.end(), number) != neutral.end()) return ok_status();
  return unsupported(name, fmt::format("leave it out, or set it to {}", *neutral.begin()));
}

}  // namespace strata::serve
