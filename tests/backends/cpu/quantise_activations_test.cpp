// Activations rounded to 8 bits: the formula, its edges, and equal bits on every path.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "tests/backends/cpu/matmul_support.h"

namespace strata::cpu::test {
namespace {

std::vector<ActivationBlock> quantise(Isa isa, const std::vector<float>& x) {
  std::vector<ActivationBlock> blocks(x.size() / 32);
  matmul_kernels(isa).quantise_row(x.data(), static_cast<int64_t>(x.size()), blocks.data());
  return blocks;
}

TEST(QuantiseActivations, RoundsToNearestEvenAtTheLargestMagnitude) {
  std::vector<float> x(32, 0.0f);
  // Whole steps with 127 levels, which the other levels would lose.
  for (int i = 4; i < 32; ++i) x[i] = static_cast<float>(2 * (31 + 3 * i) * (i % 2 == 0 ? 1 : -1));
  x[0] = -254.0f;  // d = 2: halves are ties
  x[1] = 1.0f;     // 0.5 -> 0
  x[2] = 3.0f;     // 1.5 -> 2
  x[3] = -5.0f;    // -2.5 -> -2
  x[17] = 252.9f;  // 126.45 -> 126
  for (const Isa isa : isas()) {
    const ActivationBlock block = quantise(isa, x)[0];
    EXPECT_EQ(block.d, 2.0f);
    EXPECT_EQ(block.q[0], -127);
    EXPECT_EQ(block.q[1], 0);
    EXPECT_EQ(block.q[2], 2);
    EXPECT_EQ(block.q[3], -2);
    EXPECT_EQ(block.q[4], 43);
    EXPECT_EQ(block.q[17], 126);
    const int low = std::accumulate(block.q, block.q + 16, 0);
    const int high = std::accumulate(block.q + 16, block.q + 32, 0);
    EXPECT_EQ(block.negative_sum_low, -low);
    EXPECT_EQ(block.negative_sum_high, -high);
    EXPECT_EQ(block.negative_sum, -(low + high));
    EXPECT_EQ(block.s, 2.0f * static_cast<float>(low + high));
  }
}

// Squared error of the block's values, in double.
double squared_error(const ActivationBlock& block, const float* x) {
  double sum = 0;
  for (int i = 0; i < 32; ++i) {
    const double error = static_cast<double>(block.q[i]) * block.d - x[i];
    sum += error * error;
  }
  return sum;
}

TEST(QuantiseActivations, PicksTheLevelThatLosesLeast) {
  const std::vector<float> x = random_activations(32, 200, 9);
  const auto blocks = quantise({IsaLevel::scalar, false}, x);
  double ours = 0;
  double always_127 = 0;
  for (size_t b = 0; b < 200; ++b) {
    const float* values = x.data() + 32 * b;
    float amax = 0;
    for (int i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(values[i]));
    const double loss = squared_error(blocks[b], values);
    for (int levels = 120; levels <= 127; ++levels) {
      const double d = static_cast<double>(amax) / levels;
      double other = 0;
      for (int i = 0; i < 32; ++i) {
        const double error = std::nearbyint(values[i] / d) * d - values[i];
        other += error * error;
      }
      ASSERT_LE(loss, other * 1.01 + 1e-12) << "block " << b << ", levels " << levels;
      if (levels == 127) always_127 += other;
    }
    ours += loss;
  }
  EXPECT_LT(ours, 0.85 * always_127);
}

TEST(QuantiseActivations, GivesEqualBitsOnEveryPath) {
  std::vector<float> x = random_activations(32, 400, 5);
  Random random(6);
  for (size_t b = 0; b < 400; ++b) {  // scales from subnormal to near the largest float
    const int exponent = static_cast<int>(random.next() % 270) - 145;
    for (size_t i = 0; i < 32; ++i) x[32 * b + i] = std::ldexp(x[32 * b + i], exponent);
  }
  const auto expected = quantise({IsaLevel::scalar, false}, x);
  for (const Isa isa : isas()) {
    const auto blocks = quantise(isa, x);
    ASSERT_EQ(std::memcmp(blocks.data(), expected.data(), blocks.size() * sizeof(blocks[0])), 0)
        << isa_name(isa);
  }
  for (size_t b = 0; b < expected.size(); ++b) {
    float amax = 0;
    for (size_t i = 0; i < 32; ++i) amax = std::max(amax, std::fabs(x[32 * b + i]));
    if (amax < 0x1p-120f) {
      EXPECT_EQ(expected[b].d, 0.0f);
      continue;
    }
    for (size_t i = 0; i < 32; ++i) {
      ASSERT_GE(expected[b].q[i], -127);
      ASSERT_NEAR(static_cast<double>(expected[b].q[i]) * expected[b].d, x[32 * b + i],
                  0.50001 * expected[b].d);
    }
  }
}

// At both ends of the numbers that are rounded, and where all levels lose the same, nothing.
TEST(QuantiseActivations, EdgesAreTheSameOnEveryPath) {
  const float least = 0x1p-120f;
  const float most = std::numeric_limits<float>::max();
  const std::vector<float> shape = random_activations(32, 1, 3);
  for (const float amax : {least, std::nextafter(least, 1.0f), std::nextafter(least, 0.0f), most,
                           std::nextafter(most, 0.0f), 0.3f, 1.0f}) {
    std::vector<float> one_number(32, 0.0f);
    one_number[7] = -amax;
    std::vector<float> many;
    for (const float x : shape) many.push_back(std::clamp(x, -1.0f, 1.0f) * amax);
    many[31] = amax;
    const auto expected_one = quantise({IsaLevel::scalar, false}, one_number)[0];
    const auto expected_many = quantise({IsaLevel::scalar, false}, many)[0];
    EXPECT_EQ(expected_one.q[7], amax < least ? 0 : -127) << amax;
    EXPECT_GE(expected_many.q[31], amax < least ? 0 : 120) << amax;
    EXPECT_TRUE(std::isfinite(expected_many.d)) << amax;
    for (const Isa isa : isas()) {
      const auto one = quantise(isa, one_number)[0];
      const auto some = quantise(isa, many)[0];
      EXPECT_EQ(std::memcmp(&one, &expected_one, sizeof(one)), 0) << isa_name(isa) << ' ' << amax;
      EXPECT_EQ(std::memcmp(&some, &expected_many, sizeof(some)), 0)
          << isa_name(isa) << ' ' << amax;
    }
  }
}

TEST(QuantiseActivations, ShowsWhatIsNotFiniteAndPassesZeros) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Isa isa : isas()) {
    for (const float bad : {inf, -inf, nan, -nan}) {
      std::vector<float> x(64, 1.0f);
      x[40] = bad;
      const auto blocks = quantise(isa, x);
      EXPECT_EQ(blocks[0].d, 1.0f / 127.0f);
      EXPECT_TRUE(std::isnan(blocks[1].d));
      EXPECT_TRUE(std::isnan(blocks[1].s));
      for (const int8_t q : blocks[1].q) EXPECT_EQ(q, 0);
    }
    const auto zeros = quantise(isa, std::vector<float>(32, -0.0f));
    EXPECT_EQ(zeros[0].d, 0.0f);
    EXPECT_EQ(zeros[0].negative_sum, 0);
    const auto largest = quantise(isa, std::vector<float>(32, std::numeric_limits<float>::max()));
    EXPECT_TRUE(std::isfinite(largest[0].d));
    EXPECT_EQ(largest[0].q[31], 127);
  }
}

}  // namespace
}  // namespace strata::cpu::test
