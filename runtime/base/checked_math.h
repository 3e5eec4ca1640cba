// Checked arithmetic on sizes: the one helper for every count, length, offset and dimension that
// comes from a file or a peer. An empty optional means that the true result does not fit.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>

namespace strata {

template <std::integral T>
constexpr std::optional<T> checked_add(T a, T b) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
constexpr std::optional<T> checked_sub(T a, T b) {
  T result;
  if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
  return result;
}

template <std::integral T>
constexpr std::optional<T> checked_mul(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// The product of all factors; 1 for none.
template <std::integral T>
constexpr std::optional<T> checked_product(std::initializer_list<T> factors) {
  T result = 1;
  for (const T factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) return std::nullopt;
  }
  return result;
}

// The least multiple of `alignment` that is not below `value`. Requires: alignment is a power of
// two.
constexpr std::optional<uint64_t> checked_align_up(uint64_t value, uint64_t alignment) {
  const std::optional<uint64_t> padded = checked_add(value, alignment - 1);
  if (!padded) return std::nullopt;
  return *padded & ~(alignment - 1);
}

// For sizes that were checked before and cannot overflow.
constexpr uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

constexpr int64_t divide_up(int64_t value, int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// True if [offset, offset + size) lies inside [0, limit), without a sum that can wrap.
constexpr bool range_fits(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

}  // namespace strata
