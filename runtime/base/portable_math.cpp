#include "runtime/base/portable_math.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace strata {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in three parts. The first has 32 significant bits: its product with an exponent is exact.
constexpr double kLn2Head = 0x1.62e42feep-1;
constexpr double kLn2Mid = 0x1.a39ef35793c76p-33;
constexpr double kLn2Tail = 0x1.cc01f97b57a08p-87;
// pi/2 in three parts of 53 bits.
constexpr double kHalfPiHead = 0x1.921fb54442d18p+0;
constexpr double kHalfPiMid = 0x1.1a62633145c07p-54;
constexpr double kHalfPiTail = -0x1.f1976b7ed8fbcp-110;
constexpr double kTwoThirdsLow = 0x1.5555555555555p-55;  // 2/3 less the double nearest to it
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// A value as the unevaluated sum of two doubles, |low| at most half an ulp of high.
struct Pair {
  double high;
  double low;
};

// The exact sum (Knuth): no condition on the sizes.
Pair two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// The exact product.
Pair two_product(double a, double b) {
  const double product = a * b;
  return {product, std::fma(a, b, -product)};
}

// A product whose relative error is a few 2^-104.
Pair multiply(Pair a, Pair b) {
  const Pair product = two_product(a.high, b.high);
  return {product.high, product.low + (a.high * b.low + a.low * b.high)};
}

// 2^k for k in [-1022, 1023].
double power_of_two(int64_t k) {
  return std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
}

// y * 2^k with one rounding. Requires: y in [0.5, 2], |k| <= 1100.
double scale(double y, int64_t k) {
  const int64_t half = k / 2;
  return y * power_of_two(half) * power_of_two(k - half);
}

int64_t nearest_integer(double x) { return static_cast<int64_t>(x + (x < 0 ? -0.5 : 0.5)); }

// 1/2! + r/3! + ... + r^11/13!: the rest of the exponential's series is below 2^-57. For one number
// or several side by side.
template <typename T>
T exp_series(T r) {
  T p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  return p * r + 0.5;
}

// e^(high + low) with |low| far below |high|. high is any number.
double exp_of_pair(double high, double low) {
  if (high > 709.9) return kInfinity;
  if (high < -745.5) return 0.0;
  const int64_t k = nearest_integer(high * kLog2E);
  const double count = static_cast<double>(k);
  // |r| <= ln 2 / 2. The first subtraction is exact.
  const double head = high - count * kLn2Head;
  const Pair r = two_sum(head, low - count * kLn2Mid);
  const double p = exp_series(r.high);
  const double square = r.high * r.high;
  return scale(1.0 + (r.high + (square * p + r.low)), k);
}

// Two numbers that go through the same steps side by side: the steps of one wait for each other.
// The compiler maps them to whatever vector registers the build has; each lane rounds as a scalar.
using Lanes = double __attribute__((vector_size(16)));
using Int32Lanes = int32_t __attribute__((vector_size(8)));
using Int64Lanes = int64_t __attribute__((vector_size(16)));
constexpr size_t kLanes = 2;

// By reference: passing such a type by value depends on the build's vector registers.
// k: whole numbers in [-1022, 1023]. 2^52 more puts k + 1023 into the lowest bits, from where a
// shift makes it the exponent.
void multiply_by_power_of_two(Lanes& values, const Lanes& k) {
  const Lanes shifted = k + (0x1p52 + 1023.0);
  Int64Lanes bits;
  std::memcpy(&bits, &shifted, sizeof(bits));
  bits <<= 52;
  Lanes power;
  std::memcpy(&power, &bits, sizeof(power));
  values *= power;
}

// exp_of_pair(x, 0) for x in [-746, 0], operation by operation.
void exp_of_nonpositive(Lanes& x) {
  const Int32Lanes k = __builtin_convertvector(x * kLog2E - 0.5, Int32Lanes);
  const Lanes count = __builtin_convertvector(k, Lanes);
  const Lanes head = x - count * kLn2Head;
  const Lanes tail = 0.0 - count * kLn2Mid;
  const Lanes high = head + tail;
  const Lanes tail_part = high - head;
  const Lanes low = (head - (high - tail_part)) + (tail - tail_part);
  const Lanes p = exp_series(high);
  const Lanes square = high * high;
  x = 1.0 + (high + (square * p + low));
  const Lanes half = __builtin_convertvector(k >> 1, Lanes);
  multiply_by_power_of_two(x, half);
  multiply_by_power_of_two(x, count - half);
}

// x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)). Requires: x positive and finite.
struct Split {
  double mantissa;
  int64_t exponent;
};
Split split(double x) {
  int64_t exponent = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    exponent = -54;
  }
  uint64_t bits = std::bit_cast<uint64_t>(x);
  exponent += static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL;
  double mantissa = std::bit_cast<double>(bits);
  if (mantissa >= 0x1.6a09e667f3bcdp+0) {
    mantissa *= 0.5;
    exponent += 1;
  }
  return {mantissa, exponent};
}

// 2 z/5 + 2 z^2/7 + ... + 2 z^11/25, so that ln((1+s)/(1-s)) = 2s + s^3 (2/3 + tail(s^2)).
// z <= 0.0295: the rest is below 2^-61.
double log_series_tail(double z) {
  double p = 2.0 / 25.0;
  p = p * z + 2.0 / 23.0;
  p = p * z + 2.0 / 21.0;
  p = p * z + 2.0 / 19.0;
  p = p * z + 2.0 / 17.0;
  p = p * z + 2.0 / 15.0;
  p = p * z + 2.0 / 13.0;
  p = p * z + 2.0 / 11.0;
  p = p * z + 2.0 / 9.0;
  p = p * z + 2.0 / 7.0;
  p = p * z + 2.0 / 5.0;
  return p * z;
}

// ln x with about 63 good bits. Requires: x positive and finite.
Pair log_as_pair(double x) {
  const Split parts = split(x);
  const double count = static_cast<double>(parts.exponent);
  const double f = parts.mantissa - 1.0;  // exact
  // s = f / (2 + f) as a pair: the quotient, and the remainder divided again.
  const Pair divisor = two_sum(2.0, f);
  const double s = f / divisor.high;
  const double remainder = std::fma(-s, divisor.high, f) - s * divisor.low;
  const double s_low = remainder / divisor.high;
  const Pair square = two_product(s, s);
  const Pair z = {square.high, square.low + 2.0 * s * s_low};
  const Pair series = two_sum(2.0 / 3.0, log_series_tail(z.high));
  const Pair tail = multiply(multiply(z, {s, s_low}), {series.high, series.low + kTwoThirdsLow});
  // count * ln2 + 2s + tail, from the largest to the smallest.
  const Pair mid = two_product(count, kLn2Mid);
  Pair sum = two_sum(count * kLn2Head, 2.0 * s);
  const Pair with_mid = two_sum(sum.high, mid.high);
  const Pair with_tail = two_sum(with_mid.high, tail.high);
  const double low = ((sum.low + with_mid.low) + with_tail.low) +
                     ((2.0 * s_low + tail.low) + (mid.low + count * kLn2Tail));
  return two_sum(with_tail.high, low);
}

// x - quadrant * pi/2, with |high| at most a little over pi/4.
struct Reduced {
  int64_t quadrant;
  Pair angle;
};
Reduced reduce_angle(double x) {
  const int64_t quadrant = nearest_integer(x * kTwoOverPi);
  const double count = static_cast<double>(quadrant);
  const Pair head = two_product(count, kHalfPiHead);
  const Pair mid = two_product(count, kHalfPiMid);
  // Exact: x and head.high are within a factor of two, or the count is zero.
  const double first = x - head.high;
  const Pair second = two_sum(first, -head.low);
  const Pair third = two_sum(second.high, -mid.high);
  const double low = (second.low + third.low) - (mid.low + count * kHalfPiTail);
  return {quadrant, two_sum(third.high, low)};
}

// Taylor series to r^17: the rest is below 2^-63.
double sin_near_zero(Pair r) {
  const double z = r.high * r.high;
  double p = 1.0 / 355687428096000.0;
  p = p * z - 1.0 / 1307674368000.0;
  p = p * z + 1.0 / 6227020800.0;
  p = p * z - 1.0 / 39916800.0;
  p = p * z + 1.0 / 362880.0;
  p = p * z - 1.0 / 5040.0;
  p = p * z + 1.0 / 120.0;
  p = p * z - 1.0 / 6.0;
  return r.high + (r.high * z * p + r.low * (1.0 - 0.5 * z));
}

// Taylor series to r^18: the rest is below 2^-67.
double cos_near_zero(Pair r) {
  const double z = r.high * r.high;
  double p = -1.0 / 6402373705728000.0;
  p = p * z + 1.0 / 20922789888000.0;
  p = p * z - 1.0 / 87178291200.0;
  p = p * z + 1.0 / 479001600.0;
  p = p * z - 1.0 / 3628800.0;
  p = p * z + 1.0 / 40320.0;
  p = p * z - 1.0 / 720.0;
  p = p * z + 1.0 / 24.0;
  const double half = 0.5 * z;
  const double whole = 1.0 - half;
  return whole + (((1.0 - whole) - half) + (z * z * p - r.high * r.low));
}

}  // namespace

double portable_exp(double x) {
  if (x != x) return x;
  return exp_of_pair(x, 0.0);
}

void portable_exp_of_nonpositive(std::span<double> values) {
  // e^-746 rounds to 0, as does everything below.
  const auto clamped = [](double x) { return x < -746.0 ? -746.0 : x; };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    Lanes x = {clamped(values[i]), clamped(values[i + 1])};
    exp_of_nonpositive(x);
    std::memcpy(&values[i], &x, sizeof(x));
  }
  for (; i < values.size(); ++i) values[i] = portable_exp(values[i]);
}

double portable_log(double x) {
  if (x != x || x == kInfinity) return x;
  if (x < 0.0) return kNan;
  if (x == 0.0) return -kInfinity;
  return log_as_pair(x).high;
}

double portable_pow(double x, double y) {
  if (y == 0.0 || x == 1.0) return 1.0;
  if (x != x || y != y || x < 0.0) return kNan;
  if (x == 0.0) return y > 0.0 ? 0.0 : kInfinity;
  if (x == kInfinity) return y > 0.0 ? kInfinity : 0.0;
  if (y == kInfinity || y == -kInfinity) return (x > 1.0) == (y > 0.0) ? kInfinity : 0.0;
  const Pair log_x = log_as_pair(x);
  const Pair product = two_product(y, log_x.high);
  // Far outside the range of exp, where the low parts may be NaN.
  if (product.high > 800.0) return kInfinity;
  if (product.high < -800.0) return 0.0;
  return exp_of_pair(product.high, product.low + y * log_x.low);
}

SinCos portable_sincos(double x) {
  if (!(x >= -0x1p30 && x <= 0x1p30)) return {kNan, kNan};
  const Reduced reduced = reduce_angle(x);
  const double s = sin_near_zero(reduced.angle);
  const double c = cos_near_zero(reduced.angle);
  switch (reduced.quadrant & 3) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

double portable_sin(double x) { return portable_sincos(x).sin; }
double portable_cos(double x) { return portable_sincos(x).cos; }

}  // namespace strata
