#include "runtime/model/model_keys.h"

#include <fmt/format.h>

#include <cmath>

namespace strata {
namespace {

Result<int32_t> in_range(const ModelKeys& keys, std::string_view name, ModelKeys::Range range,
                         int64_t value) {
  if (value < range.min || value > range.max) {
    return keys.error(name, fmt::format("is {}, must be {} to {}", value, range.min, range.max));
  }
  return static_cast<int32_t>(value);
}

}  // namespace

Result<int32_t> ModelKeys::count(std::string_view name, Range range) const {
  const int64_t value = TRY(metadata_.get<int64_t>(full_name(name)));
  return in_range(*this, name, range, value);
}

Result<int32_t> ModelKeys::count_or(std::string_view name, Range range, int32_t fallback) const {
  if (!contains(name)) return fallback;
  return count(name, range);
}

Result<int32_t> ModelKeys::layer_count_or(std::string_view name, Range range, int32_t layers,
                                          int32_t fallback) const {
  const MetadataValue* value = metadata_.find(full_name(name));
  if (value == nullptr) return fallback;
  if (!value->is_array()) return count(name, range);
  const std::vector<int64_t> values = TRY(metadata_.get_numbers<int64_t>(full_name(name)));
  if (values.size() != static_cast<size_t>(layers)) {
    return error(name, fmt::format("has {} elements, must have one for each of {} layers",
                                   values.size(), layers));
  }
  for (const int64_t other : values) {
    if (other != values[0]) {
      return error(name, fmt::format("differs between layers ({} and {}), which is not supported",
                                     values[0], other));
    }
  }
  return in_range(*this, name, range, values[0]);
}

Result<float> ModelKeys::positive(std::string_view name) const {
  const float value = TRY(metadata_.get<float>(full_name(name)));
  if (!std::isfinite(value) || value <= 0) {
    return error(name, fmt::format("is {}, must be a finite number above 0", value));
  }
  return value;
}

Result<float> ModelKeys::positive_or(std::string_view name, float fallback) const {
  if (!contains(name)) return fallback;
  return positive(name);
}

Result<float> ModelKeys::non_negative_or(std::string_view name, float fallback) const {
  if (!contains(name)) return fallback;
  const float value = TRY(metadata_.get<float>(full_name(name)));
  if (!std::isfinite(value) || value < 0) {
    return error(name, fmt::format("is {}, must be a finite number, 0 or more", value));
  }
  return value;
}

Result<std::string> ModelKeys::text_or(std::string_view name, std::string fallback) const {
  return metadata_.get_or<std::string>(full_name(name), std::move(fallback));
}

Result<bool> ModelKeys::flag_or(std::string_view name, bool fallback) const {
  return metadata_.get_or<bool>(full_name(name), fallback);
}

}  // namespace strata
