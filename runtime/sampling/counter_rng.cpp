#include "runtime/sampling/counter_rng.h"

namespace strata {
namespace {

// The round multipliers and key increments (golden ratio, sqrt(3) - 1) of the paper's table 2.
constexpr uint64_t kMultiplier0 = 0xD2511F53;
constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                      std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t first = kMultiplier0 * counter[0];
    const uint64_t second = kMultiplier1 * counter[2];
    counter = {
        static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
        static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform_at(const RngPoint& point) {
  const std::array<uint32_t, 4> words =
      philox4x32_10({point.position, point.choice, point.draw, 0},
                    {static_cast<uint32_t>(point.seed), static_cast<uint32_t>(point.seed >> 32)});
  return static_cast<double>(words[0] >> 8) * 0x1p-24;
}

}  // namespace strata
