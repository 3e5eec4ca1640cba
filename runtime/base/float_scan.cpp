#include "runtime/base/float_scan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace strata {
namespace {

// Running maxima side by side: four registers of 4, enough to hide the latency of a maximum.
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
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t not_finite = 0;
  for (const float value : values) {
    not_finite |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  }
  return not_finite == 0;
}

size_t index_of_largest(std::span<const float> values) {
  const float largest = largest_of(values);
  return static_cast<size_t>(std::find(values.begin(), values.end(), largest) - values.begin());
}

}  // namespace strata
