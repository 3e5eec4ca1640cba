// exp and the functions made of it, over 16 lanes: equal bits on every path.
//
// libm is not used (its results change with the processor). Errors stated are against the exact
// value and tested by tests/backends/cpu/vec_test.cpp.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

// e^x, error below 1.5 ulp; +inf above 88.73, 0 below -87.33, NaN stays NaN.
//
// What would be subnormal is 0: processors take some 150 cycles to make one, and attention weights
// far below the largest are many.
//
// x = n ln 2 + r with |r| <= ln(2) / 2, the product n ln 2 subtracted in two parts (Cody and
// Waite); e^r is its Taylor polynomial of degree 7, whose remainder is below 0.1 ulp there.
[[gnu::always_inline]] inline F32x16 exp(F32x16 x) {
  const F32x16 least = broadcast(-87.33f);
  const auto vanishes = less(x, least);
  // The operand that may be NaN stands second, where min and max let it through.
  x = max(least, min(broadcast(89.0f), x));
  const I32x16 n = to_i32(mul(x, broadcast(0x1.715476p+0f)));
  const F32x16 n_float = to_f32(n);
  F32x16 r = fnma(n_float, broadcast(0x1.62e4p-1f), x);
  r = fnma(n_float, broadcast(0x1.7f7d1cp-20f), r);
  F32x16 p = broadcast(1.0f / 5040.0f);
  p = fma(p, r, broadcast(1.0f / 720.0f));
  p = fma(p, r, broadcast(1.0f / 120.0f));
  p = fma(p, r, broadcast(1.0f / 24.0f));
  p = fma(p, r, broadcast(1.0f / 6.0f));
  p = fma(p, r, broadcast(0.5f));
  p = fma(p, mul(r, r), r);
  return select(vanishes, zero_f32(), scale_by_power(add(p, broadcast(1.0f)), n));
}

// 1 / (1 + e^-x), error below 3 ulp.
inline F32x16 sigmoid(F32x16 x) { return div(broadcast(1.0f), add(broadcast(1.0f), exp(neg(x)))); }

// The largest finite number below -inf, so that a product with 0 gives 0; NaN stays NaN.
inline F32x16 above_minus_infinity(F32x16 x) { return max(broadcast(-0x1.fffffep+127f), x); }

// x / (1 + e^-x).
inline F32x16 silu(F32x16 x) {
  x = above_minus_infinity(x);
  return div(x, add(broadcast(1.0f), exp(neg(x))));
}

// 0.5 x (1 + tanh(u)) with u = sqrt(2/pi) (x + 0.044715 x^3), written as x / (1 + e^(-2u)), which
// loses nothing by cancellation for negative x.
inline F32x16 gelu_tanh(F32x16 x) {
  x = above_minus_infinity(x);
  const F32x16 inner = fma(mul(x, x), broadcast(0.044715f), broadcast(1.0f));
  const F32x16 minus_2u = mul(mul(x, inner), broadcast(-1.5957691216f));
  return div(x, add(broadcast(1.0f), exp(minus_2u)));
}

// x < 0 ? 0 : x; NaN stays NaN.
inline F32x16 relu(F32x16 x) { return max(zero_f32(), x); }

// Error below 3 ulp. Small |x| by the odd Taylor series, the rest by (1 - e^-2|x|) / (1 + e^-2|x|).
inline F32x16 tanh(F32x16 x) {
  const F32x16 magnitude = abs(x);
  const F32x16 decay = exp(mul(magnitude, broadcast(-2.0f)));
  const F32x16 large = div(sub(broadcast(1.0f), decay), add(broadcast(1.0f), decay));
  const F32x16 square = mul(x, x);
  F32x16 p = broadcast(-929569.0f / 638512875.0f);
  p = fma(p, square, broadcast(21844.0f / 6081075.0f));
  p = fma(p, square, broadcast(-1382.0f / 155925.0f));
  p = fma(p, square, broadcast(62.0f / 2835.0f));
  p = fma(p, square, broadcast(-17.0f / 315.0f));
  p = fma(p, square, broadcast(2.0f / 15.0f));
  p = fma(p, square, broadcast(-1.0f / 3.0f));
  const F32x16 small = fma(mul(x, square), p, x);
  return copy_sign(select(less(magnitude, broadcast(0.5f)), small, large), x);
}

}  // namespace strata::cpu::STRATA_CPU_ISA
