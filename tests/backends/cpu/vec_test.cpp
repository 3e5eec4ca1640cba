// The vector interface: every path equals the scalar one bit by bit, and the scalar one is right.
// Inputs are random bit patterns (so subnormals, infinities and NaN are among them) and the values
// at which something changes.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "backends/cpu/isa.h"
#include "tests/backends/cpu/vec_probe.h"

namespace strata::cpu {
namespace {

const VecProbe& probe_of(Isa isa) {
  if (isa.level == IsaLevel::avx512) return vec_probe_avx512();
  if (isa.level == IsaLevel::avx2) return vec_probe_avx2();
  return vec_probe_scalar();
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Equal bits, where any NaN equals any other: which operand's payload survives is not ours to fix.
bool same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

std::vector<float> interesting_floats() {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f,
                               -1.0f,
                               kInfinity,
                               -kInfinity,
                               NAN,
                               0.5f,
                               -0.5f,
                               0x1p-126f,
                               0x1p-149f,
                               -0x1p-149f,
                               88.72f,
                               88.73f,
                               89.0f,
                               -87.3f,
                               -87.33f,
                               std::nextafter(-87.33f, 0.0f),
                               std::nextafter(-87.33f, -100.0f),
                               -103.9f,
                               -104.0f,
                               65504.f,
                               65519.f,
                               65520.0f,
                               0x1p-14f,
                               0x1p-24f,
                               0x1p-25f,
                               2.5f,
                               3.5f,
                               -2.5f,
                               0x1.8p-25f,
                               0.4999f,
                               0x1.fffffep127f};
  std::mt19937 random(7);
  std::uniform_real_distribution<float> moderate(-20.0f, 20.0f);
  for (int i = 0; i < 4000; ++i) values.push_back(moderate(random));
  while (values.size() % 16 != 0 || values.size() < 12000) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  return values;
}

class VecPath : public testing::TestWithParam<Isa> {
 protected:
  const VecProbe& probe = probe_of(GetParam());
  const VecProbe& scalar = vec_probe_scalar();
};

std::string isa_test_name(const testing::TestParamInfo<Isa>& tested) {
  std::string name = isa_name(tested.param);
  std::replace(name.begin(), name.end(), '+', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Isa, VecPath, testing::ValuesIn(available_isas()), isa_test_name);

TEST_P(VecPath, UnaryOperationsEqualScalar) {
  const std::vector<float> values = interesting_floats();
  for (int op = 0; op < static_cast<int>(std::size(kUnaryNames)); ++op) {
    for (size_t i = 0; i < values.size(); i += 16) {
      float in[16];
      std::memcpy(in, &values[i], sizeof in);
      // Rounding to integers is defined up to 2^22.
      if (op == 9) {
        for (float& x : in) x = std::abs(x) <= 4194304.0f ? x : 1.5f;
      }
      float expected[16];
      float got[16];
      scalar.unary(op, in, expected);
      probe.unary(op, in, got);
      for (int lane = 0; lane < 16; ++lane) {
        ASSERT_TRUE(same(expected[lane], got[lane]))
            << kUnaryNames[op] << "(" << in[lane] << ") = " << got[lane] << ", scalar "
            << expected[lane];
      }
    }
  }
}

TEST_P(VecPath, OperationsOnSeveralOperandsEqualScalar) {
  const std::vector<float> a = interesting_floats();
  std::vector<float> b = a;
  std::vector<float> c = a;
  std::mt19937 random(11);
  std::shuffle(b.begin(), b.end(), random);
  std::shuffle(c.begin(), c.end(), random);
  for (int op = 0; op < static_cast<int>(std::size(kTernaryNames)); ++op) {
    for (size_t i = 0; i < a.size(); i += 16) {
      float expected[16];
      float got[16];
      scalar.ternary(op, &a[i], &b[i], &c[i], expected);
      probe.ternary(op, &a[i], &b[i], &c[i], got);
      for (int lane = 0; lane < 16; ++lane) {
        ASSERT_TRUE(same(expected[lane], got[lane])) << kTernaryNames[op] << " of " << a[i + lane]
                                                     << " " << b[i + lane] << " " << c[i + lane];
      }
    }
  }
}

TEST_P(VecPath, EveryHalfConvertsLikeScalar) {
  for (uint32_t i = 0; i < 65536; i += 16) {
    uint16_t in[16];
    for (uint32_t lane = 0; lane < 16; ++lane) in[lane] = static_cast<uint16_t>(i + lane);
    float expected[16];
    float got[16];
    scalar.from_f16(in, expected);
    probe.from_f16(in, got);
    ASSERT_EQ(0, std::memcmp(expected, got, sizeof got)) << i;
    scalar.from_bf16(in, expected);
    probe.from_bf16(in, got);
    ASSERT_EQ(0, std::memcmp(expected, got, sizeof got)) << i;
  }
}

TEST_P(VecPath, FloatsRoundToHalvesLikeScalar) {
  std::vector<float> values = interesting_floats();
  // Every half, and the points halfway to the next one: ties and their neighbours.
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    uint16_t half[16] = {static_cast<uint16_t>(i), static_cast<uint16_t>(i + 1)};
    float pair[16];
    scalar.from_f16(half, pair);
    const float middle = (pair[0] + pair[1]) / 2;
    values.insert(values.end(), {pair[0], middle, std::nextafter(middle, 0.0f),
                                 std::nextafter(middle, kInfinity)});
  }
  values.resize(values.size() / 16 * 16);
  for (size_t i = 0; i < values.size(); i += 16) {
    uint16_t expected[16];
    uint16_t got[16];
    scalar.to_f16(&values[i], expected);
    probe.to_f16(&values[i], got);
    for (int lane = 0; lane < 16; ++lane) {
      ASSERT_EQ(expected[lane], got[lane]) << values[i + lane];
    }
  }
}

TEST_P(VecPath, ReductionsEqualScalar) {
  const std::vector<float> values = interesting_floats();
  for (size_t i = 0; i + 16 <= values.size(); i += 3) {
    EXPECT_TRUE(same(scalar.reduce_tree(&values[i]), probe.reduce_tree(&values[i])));
    EXPECT_TRUE(same(scalar.reduce_max(&values[i]), probe.reduce_max(&values[i])));
  }
}

TEST_P(VecPath, PartialLoadsAndStoresTouchOnlyTheirLanes) {
  for (int n = 0; n <= 16; ++n) {
    // Exactly n elements, so that a sanitizer sees a read or write beyond.
    std::vector<float> in(static_cast<size_t>(n), 3.0f);
    std::vector<float> out(17, -1.0f);
    probe.copy_n(in.data(), out.data(), n);
    std::vector<uint16_t> in_half(static_cast<size_t>(n), 0x4200);
    std::vector<uint16_t> out_half(17, 1);
    probe.copy_f16_n(in_half.data(), out_half.data(), n);
    for (int i = 0; i < 17; ++i) {
      EXPECT_EQ(out[static_cast<size_t>(i)], i < n ? 3.0f : -1.0f);
      EXPECT_EQ(out_half[static_cast<size_t>(i)], i < n ? 0x4200 : 1);
    }
  }
}

TEST_P(VecPath, IntegersAndLaneRanges) {
  float ones[16];
  float twos[16];
  float rounded_in[16];
  int8_t bytes[16];
  for (int i = 0; i < 16; ++i) {
    ones[i] = 1.0f;
    twos[i] = 2.0f;
    rounded_in[i] = static_cast<float>(i * 17 - 128) - 0.5f;
    bytes[i] = static_cast<int8_t>(i * 17 - 128);
  }
  int8_t rounded[16];
  probe.round_to_i8(rounded_in, rounded);
  int32_t wide[16];
  int32_t wide_unsigned[16];
  probe.widen(bytes, wide, wide_unsigned);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(rounded[i], static_cast<int8_t>(std::nearbyint(rounded_in[i])));
    EXPECT_EQ(wide[i], bytes[i]);
    EXPECT_EQ(wide_unsigned[i], static_cast<uint8_t>(bytes[i]));
  }
  int32_t numbers[16];
  float nibbles[16];
  for (int i = 0; i < 16; ++i) numbers[i] = i + 16 * (i * 37 % 256);
  probe.nibbles(numbers, nibbles);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(nibbles[i], static_cast<float>(i - 8));
  for (int begin = 0; begin <= 16; ++begin) {
    for (int end = begin; end <= 16; ++end) {
      float out[16];
      probe.select_range(ones, twos, begin, end, out);
      for (int i = 0; i < 16; ++i) EXPECT_EQ(out[i], i >= begin && i < end ? 1.0f : 2.0f);
    }
  }
}

// Error in units of the last place of the exact result, at the float's precision.
double ulp_error(float got, double exact) {
  if (std::isinf(got) && std::abs(exact) > 0x1.fffffep127) return 0;
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(static_cast<double>(got) - exact) /
         std::ldexp(1.0, std::max(exponent - 24, -149));
}

// The other paths equal scalar, so its errors are theirs.
TEST(VecMath, ErrorsAreAsStated) {
  struct Case {
    int op;
    double (*exact)(double);
    double limit;
  };
  const Case cases[] = {
      {3, [](double x) { return std::exp(x); }, 1.5},
      {4, [](double x) { return 1 / (1 + std::exp(-x)); }, 3},
      {5, [](double x) { return x / (1 + std::exp(-x)); }, 4},
      {7, [](double x) { return std::tanh(x); }, 3},
      {8, [](double x) { return x > 0 ? x : 0; }, 0},
  };
  for (const Case& test : cases) {
    double worst = 0;
    for (double x = -104.5; x < 89.5; x += 0x1.1p-9) {
      float in[16] = {static_cast<float>(x), static_cast<float>(x / 64),
                      static_cast<float>(x / 1e4)};
      float out[16];
      vec_probe_scalar().unary(test.op, in, out);
      for (int i = 0; i < 3; ++i) {
        const double exact = test.exact(static_cast<double>(in[i]));
        // Sigmoid's quotient is subnormal or 0 below -87: absolute there. exp is 0 there.
        if (in[i] < (test.op == 3 ? -87.33f : -85.0f)) continue;
        worst = std::max(worst, ulp_error(out[i], exact));
      }
    }
    EXPECT_LE(worst, test.limit) << kUnaryNames[test.op];
  }
}

TEST(VecMath, GeluIsNearTheExactValue) {
  for (double x = -12; x < 12; x += 0.001) {
    float in[16] = {static_cast<float>(x)};
    float out[16];
    vec_probe_scalar().unary(6, in, out);
    const double v = static_cast<double>(in[0]);
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    EXPECT_NEAR(out[0], 0.5 * v * (1 + std::tanh(u)), 4e-7 * std::max(1.0, std::abs(v))) << x;
  }
}

// What would be subnormal is 0, and nothing above it is.
TEST(VecMath, ExpHasNoSubnormalResults) {
  const float least = -87.33f;
  const float in[16] = {least, std::nextafter(least, -100.0f), -88.0f, -100.0f, -103.9f};
  float out[16];
  vec_probe_scalar().unary(3, in, out);
  EXPECT_GE(out[0], std::numeric_limits<float>::min());
  EXPECT_LT(out[0], 1.01f * std::numeric_limits<float>::min());
  for (int i = 1; i < 5; ++i) EXPECT_EQ(out[i], 0.0f) << in[i];
}

TEST(VecMath, LimitsAndNaN) {
  const float in[16] = {kInfinity, -kInfinity, NAN, 0.0f, -0.0f, 1000.0f, -1000.0f, -103.0f};
  const float expected_exp[8] = {kInfinity, 0, NAN, 1, 1, kInfinity, 0, 0};
  const float expected_tanh[8] = {1, -1, NAN, 0, -0.0f, 1, -1, -1};
  const float expected_silu[8] = {kInfinity, -0.0f, NAN, 0, -0.0f, 1000, -0.0f, 0};
  float out[16];
  vec_probe_scalar().unary(3, in, out);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(same(out[i], expected_exp[i])) << i << " " << out[i];
  vec_probe_scalar().unary(7, in, out);
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(same(out[i], expected_tanh[i])) << i << " " << out[i];
  for (const int op : {5, 6}) {
    vec_probe_scalar().unary(op, in, out);
    for (int i = 0; i < 7; ++i) EXPECT_TRUE(same(out[i], expected_silu[i])) << i << " " << out[i];
  }
}

TEST(Isa, IsChosenByNameAndRefusedWhenAbsent) {
  EXPECT_EQ(choose_isa("").value(), detect_isa());
  EXPECT_EQ(choose_isa("scalar").value(), Isa{});
  const Status unknown = choose_isa("neon").status();
  EXPECT_EQ(unknown.code(), StatusCode::invalid_argument);
  EXPECT_EQ(unknown.message(), "\"neon\" is no vector path");
  const Status absent = choose_isa("scalar+vnni").status();
  EXPECT_EQ(absent.code(), StatusCode::failed_precondition);
  EXPECT_EQ(absent.message(), "this processor has no scalar+vnni");
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(choose_isa(isa_name(isa) + (isa.vnni ? "" : "-vnni")).value(), isa);
  }
}

}  // namespace
}  // namespace strata::cpu
