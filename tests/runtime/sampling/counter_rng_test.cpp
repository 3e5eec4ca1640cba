// Goal: the generator is Philox4x32-10, and a draw depends on all of its point.
// Method: the known-answer vectors published with Random123 (kat_vectors, philox4x32 10).
#include "runtime/sampling/counter_rng.h"

#include <gtest/gtest.h>

#include <set>

namespace strata {
namespace {

using Counter = std::array<uint32_t, 4>;

TEST(CounterRng, EqualsThePublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(
      philox4x32_10({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(CounterRng, UniformIsTheTop24BitsOfTheFirstWord) {
  EXPECT_EQ(uniform_at({.seed = 0, .position = 0, .choice = 0, .draw = 0}),
            static_cast<double>(0x6627e8) / 16777216.0);
  const RngPoint point{.seed = 0x299f31d0a4093822, .position = 1, .choice = 2, .draw = 3};
  const Counter words = philox4x32_10({1, 2, 3, 0}, {0xa4093822, 0x299f31d0});
  EXPECT_EQ(uniform_at(point), static_cast<double>(words[0] >> 8) / 16777216.0);
}

TEST(CounterRng, EveryPartOfThePointMatters) {
  std::set<double> seen;
  for (const uint64_t seed : {0ULL, 1ULL, 1ULL << 32, 1ULL << 63, ~0ULL}) {
    for (uint32_t i = 0; i < 3; ++i) {
      seen.insert(uniform_at({.seed = seed, .position = 7 + i, .choice = 0, .draw = 0}));
      if (i == 0) continue;
      seen.insert(uniform_at({.seed = seed, .position = 7, .choice = i, .draw = 0}));
      seen.insert(uniform_at({.seed = seed, .position = 7, .choice = 0, .draw = i}));
    }
  }
  EXPECT_EQ(seen.size(), 5U * 7U);
}

TEST(CounterRng, DrawsFillTheUnitIntervalEvenly) {
  std::array<int, 16> buckets{};
  for (uint32_t i = 0; i < 160000; ++i) {
    const double u = uniform_at({.seed = 42, .position = i, .choice = 0, .draw = 0});
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++buckets[static_cast<size_t>(u * 16)];
  }
  // Six standard deviations of a binomial with mean 10,000.
  for (const int count : buckets) EXPECT_NEAR(count, 10000, 600);
}

}  // namespace
}  // namespace strata
