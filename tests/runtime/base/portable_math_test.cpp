// Goal: the portable functions are as exact as their header says, and their bits are fixed.
// Method: random and edge arguments against long double libm, the error counted in units in the
// last place of double; a checksum over the result bits that must be equal on every machine.
#include "runtime/base/portable_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace strata {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double ulp_error(double got, long double exact) {
  const double rounded = static_cast<double>(exact);
  const double ulp = std::nextafter(std::fabs(rounded), kInfinity) - std::fabs(rounded);
  return static_cast<double>(std::fabs(static_cast<long double>(got) - exact) /
                             static_cast<long double>(ulp));
}

// The largest error of `function` over `count` arguments drawn by `argument`.
template <typename Function, typename Exact, typename Argument>
double worst_error(int count, Function function, Exact exact, Argument argument) {
  double worst = 0.0;
  for (int i = 0; i < count; ++i) {
    const double x = argument();
    worst = std::max(worst, ulp_error(function(x), exact(static_cast<long double>(x))));
  }
  return worst;
}

class PortableMath : public ::testing::Test {
 protected:
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(random_() >> 11) * 0x1p-53);
  }
  std::mt19937_64 random_{20260401};
};

TEST_F(PortableMath, ExpIsWithinOneUlp) {
  const auto exact = [](long double x) { return std::exp(x); };
  EXPECT_LT(worst_error(100000, portable_exp, exact, [&] { return uniform(-708, 709); }), 1.0);
  EXPECT_LT(worst_error(100000, portable_exp, exact, [&] { return uniform(-1, 1); }), 1.0);
  EXPECT_LT(worst_error(10000, portable_exp, exact, [&] { return uniform(-745, -708); }), 1.5);
}

TEST_F(PortableMath, ExpOfARowHasTheBitsOfExp) {
  std::vector<double> values = {0.0, -0.0, -kInfinity, -745.0, -745.5, -746.0, -1e300, -1e-320};
  for (int i = 0; i < 100003; ++i) values.push_back(uniform(i % 2 == 0 ? -750 : -20, 0));
  std::vector<double> row = values;
  portable_exp_of_nonpositive(row);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint64_t>(row[i]), std::bit_cast<uint64_t>(portable_exp(values[i])))
        << values[i];
  }
}

TEST_F(PortableMath, LogIsWithinOneUlp) {
  const auto exact = [](long double x) { return std::log(x); };
  EXPECT_LT(worst_error(100000, portable_log, exact, [&] { return uniform(0.5, 2); }), 1.0);
  EXPECT_LT(worst_error(100000, portable_log, exact, [&] { return uniform(0, 1e6); }), 1.0);
  EXPECT_LT(worst_error(10000, portable_log, exact,
                        [&] { return std::bit_cast<double>(random_() % 0x7fefffffffffffffULL); }),
            1.0);
  EXPECT_LT(worst_error(10000, portable_log, exact, [&] { return 1.0 + uniform(-1e-9, 1e-9); }),
            1.0);
}

TEST_F(PortableMath, PowIsWithinOneUlpForRopeFrequencies) {
  double worst = 0.0;
  for (const double base : {10000.0, 500000.0, 1000000.0, 10000000.0, 1e15}) {
    for (int i = 0; i <= 256; ++i) {
      const double y = -static_cast<double>(i) / 256.0;
      worst = std::max(
          worst, ulp_error(portable_pow(base, y), std::pow(static_cast<long double>(base), y)));
    }
  }
  EXPECT_LT(worst, 1.0);
}

TEST_F(PortableMath, PowIsWithinOneUlpEverywhere) {
  double worst = 0.0;
  for (int i = 0; i < 100000; ++i) {
    const double x = std::exp(uniform(-300, 300));
    const double y = uniform(-700, 700) / std::log(x);
    const long double exact = std::pow(static_cast<long double>(x), static_cast<long double>(y));
    worst = std::max(worst, ulp_error(portable_pow(x, y), exact));
  }
  EXPECT_LT(worst, 1.0);
}

TEST_F(PortableMath, SinAndCosAreWithinOneUlp) {
  const auto exact_sin = [](long double x) { return std::sin(x); };
  const auto exact_cos = [](long double x) { return std::cos(x); };
  for (const double limit : {1.0, 100.0, 0x1p20, 0x1p30}) {
    const auto argument = [&] { return uniform(-limit, limit); };
    EXPECT_LT(worst_error(100000, portable_sin, exact_sin, argument), 1.0) << limit;
    EXPECT_LT(worst_error(100000, portable_cos, exact_cos, argument), 1.0) << limit;
  }
}

TEST_F(PortableMath, SinAndCosKeepTheirDigitsNearMultiplesOfHalfPi) {
  for (int k = 1; k < 700000; k += 7) {
    const double x = static_cast<double>(k) * 1.5707963267948966;
    const long double wide = x;
    // The 64 bits of long double's own reduction are trusted by glibc to be exact.
    ASSERT_LT(ulp_error(portable_sin(x), std::sin(wide)), 1.0) << k;
    ASSERT_LT(ulp_error(portable_cos(x), std::cos(wide)), 1.0) << k;
  }
}

TEST_F(PortableMath, EdgesAreIeee) {
  EXPECT_EQ(portable_exp(0.0), 1.0);
  EXPECT_EQ(portable_exp(-kInfinity), 0.0);
  EXPECT_EQ(portable_exp(kInfinity), kInfinity);
  EXPECT_EQ(portable_exp(-1e300), 0.0);
  EXPECT_EQ(portable_exp(1e300), kInfinity);
  EXPECT_EQ(portable_exp(-745.0), 0x1p-1074);
  EXPECT_TRUE(std::isnan(portable_exp(std::nan(""))));
  EXPECT_EQ(portable_log(1.0), 0.0);
  EXPECT_EQ(portable_log(0.0), -kInfinity);
  EXPECT_EQ(portable_log(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(portable_log(-1.0)));
  EXPECT_EQ(portable_pow(10000.0, 0.0), 1.0);
  EXPECT_EQ(portable_pow(0.0, 2.0), 0.0);
  EXPECT_EQ(portable_pow(0.0, -2.0), kInfinity);
  EXPECT_EQ(portable_pow(2.0, 10.0), 1024.0);
  EXPECT_EQ(portable_pow(2.0, 1e300), kInfinity);
  EXPECT_EQ(portable_pow(2.0, -1e308), 0.0);
  EXPECT_EQ(portable_pow(0.5, kInfinity), 0.0);
  EXPECT_EQ(portable_sin(0.0), 0.0);
  EXPECT_EQ(portable_cos(0.0), 1.0);
  EXPECT_TRUE(std::isnan(portable_sin(kInfinity)));
  EXPECT_TRUE(std::isnan(portable_cos(0x1p31)));
}

// The bits themselves: a compiler or a processor that rounds otherwise fails here.
TEST_F(PortableMath, BitsAreTheSameOnEveryMachine) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  const auto mix = [&hash](double value) {
    hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3ULL;
  };
  for (int i = 0; i < 20000; ++i) {
    const double unit = uniform(0, 1);
    mix(portable_exp(unit * 100 - 50));
    mix(portable_log(unit * 1000));
    mix(portable_pow(unit * 1e6, unit * 4 - 2));
    mix(portable_sin(unit * 0x1p20));
    mix(portable_cos(unit * 0x1p20));
  }
  EXPECT_EQ(hash, 6883188137434049573ULL);
}

}  // namespace
}  // namespace strata
