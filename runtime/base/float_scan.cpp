#include "runtime/base/float_scan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace strata {
namespace {

// Running results side by side: four registers of 4, enough to hide the latency of a maximum.
constexpr size_t kLanes = 16;

float largest_of(std::span<const float> values) {
  std::array<float, kLanes> largest;
  largest.fill(values[0]);
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float value = values[i + lane];
      largest[lane] = value > largest[lane] ? value : largest[lane];
    }
  }
  float best = *std::max_element(largest.begin(), largest.end());
  for (size_t i = whole; i < values.size(); ++i) best = std::max(best, values[i]);
  return best;
}

}  // namespace

bool all_finite(std::span<const float> values) {
  // One more in the exponent of a number without sign: only a full one spills into the sign's bit.
  const auto spilled = [](float value) {
    return (std::bit_cast<uint32_t>(value) & 0x7fffffffu) + 0x00800000u;
  };
  std::array<uint32_t, kLanes> bits = {};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) bits[lane] |= spilled(values[i + lane]);
  }
  uint32_t all = 0;
  for (const uint32_t lane : bits) all |= lane;
  for (size_t i = whole; i < values.size(); ++i) all |= spilled(values[i]);
  return all < 0x80000000u;
}

size_t index_of_largest(std::span<const float> values) {
  const float largest = largest_of(values);
  return static_cast<size_t>(std::find(values.begin(), values.end(), largest) - values.begin());
}

}  // namespace strata
