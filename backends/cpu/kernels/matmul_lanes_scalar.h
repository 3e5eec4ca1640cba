// The lanes of the matrix kernels in plain C++: the meaning that the other paths must match.
//
// F is kWidth floats, I is kWidth x 4 bytes; a lane is an output row. matmul_lanes_avx2.h and
// matmul_lanes_avx512.h have the same names with the same bits. (The Vec interface of the other
// kernels is not used here: it always has 16 lanes, which is two AVX2 registers, and the tiles
// below need all 16 of those for 8 rows.) Everything has internal linkage: code compiled with ISA
// flags must not leak into the rest of the program.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/matmul_kernels.h"

#define STRATA_MATMUL_ISA matmul_scalar

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

constexpr int kWidth = 16;
// Columns that one inner loop handles (1, 4 or 8), and slices of kWidth rows: for one column of a
// block type, and for any number of columns of a plain type (twice as many for one column).
constexpr int kMaxColumns = 1;
constexpr int kDotColumns = 1;
constexpr int kVectorSlices = 1;
// Slices of a block type that go through several columns together: each load of four activations
// then serves them all.
constexpr int kJointSlices = 1;
constexpr int kPlainSlices = 1;
// Q8_0's weights have 128 added in memory; if true, dot() wants them so, and as an initial value
// -128 times the sum of x.
constexpr bool kDotOfOffsetBytes = false;

struct F {
  float v[16];
};
struct I {
  uint32_t v[16];
};

// --- floats -----------------------------------------------------------------------------------

inline F set(float x) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = x;
  return r;
}
inline F zero() { return set(0.0f); }
inline F load(const float* p) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i];
  return r;
}
// The first n lanes only.
inline void store(float* p, F x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
inline F mul(F a, F b) {
  for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i];
  return a;
}
// a * b + c, rounded once.
inline F fma(F a, F b, F c) {
  for (int i = 0; i < 16; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
inline F negate(F a) {
  for (int i = 0; i < 16; ++i) a.v[i] = -a.v[i];
  return a;
}

// --- conversion -------------------------------------------------------------------------------

inline float bits_to_float(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) {
    return bits_to_float(sign | 0x7f800000 | fraction << 13 | (fraction == 0 ? 0 : 0x400000));
  }
  return bits_to_float(sign | (exponent + 112) << 23 | fraction << 13);
}
inline uint16_t load_u16(const uint8_t* p) {
  uint16_t value;
  __builtin_memcpy(&value, p, 2);
  return value;
}
// kWidth values of each kind, from memory of any alignment.
inline F load_f16(const uint8_t* p) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = half_to_float(load_u16(p + 2 * i));
  return r;
}
inline F load_bf16(const uint8_t* p) {
  F r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = bits_to_float(static_cast<uint32_t>(load_u16(p + 2 * i)) << 16);
  }
  return r;
}
inline F load_u8(const uint8_t* p) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(p[i]);
  return r;
}
inline F load_i8(const uint8_t* p) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return r;
}
inline F to_float(I x) {
  F r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(static_cast<int32_t>(x.v[i]));
  return r;
}

// --- lines of kWidth x 4 bytes ----------------------------------------------------------------

inline I load_line(const uint8_t* p) {
  I r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
inline I bit_and(I a, uint32_t mask) {
  for (int i = 0; i < 16; ++i) a.v[i] &= mask;
  return a;
}
// (a & mask) | (b & ~mask)
inline I blend_bits(uint32_t mask, I a, I b) {
  for (int i = 0; i < 16; ++i) a.v[i] = (a.v[i] & mask) | (b.v[i] & ~mask);
  return a;
}
// Shifts each four bytes as one number; negative is to the left.
template <int kRight>
inline I shift(I a) {
  for (int i = 0; i < 16; ++i) a.v[i] = kRight >= 0 ? a.v[i] >> kRight : a.v[i] << -kRight;
  return a;
}

// --- exact integer dots -----------------------------------------------------------------------

// x * 2^kBits in every lane.
template <int kBits>
inline I set_shifted(int32_t x) {
  I r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<uint32_t>(x) << kBits;
  return r;
}

// For each slice, column and lane: adds the sum over kCount quads, `first` and those behind it, of
// their four products with q[4i..4i+3]. Weights of at most kBits bits, unsigned; 8: signed (see
// kDotOfOffsetBytes).
template <int kBits, int kCount, int kSlices, int kColumns>
inline void dot(const I (*quads)[8], int first, const int8_t* const* q, I (*sums)[kColumns]) {
  static_assert(kSlices == 1 && kColumns == 1);
  for (int i = 0; i < kCount; ++i) {
    for (int lane = 0; lane < 16; ++lane) {
      int32_t sum = 0;
      for (int c = 0; c < 4; ++c) {
        const auto byte = static_cast<uint8_t>(quads[0][first + i].v[lane] >> (8 * c));
        const int32_t w = kBits == 8 ? static_cast<int8_t>(byte ^ 0x80) : byte;
        sum += w * q[0][4 * i + c];
      }
      sums[0][0].v[lane] += static_cast<uint32_t>(sum);
    }
  }
}

// --- activations ------------------------------------------------------------------------------

// The largest bits of 32 magnitudes, as integers: not finite ones count as the largest.
inline int32_t largest_magnitude_bits(const float* x) {
  int32_t largest = 0;
  for (int i = 0; i < 32; ++i) {
    int32_t bits;
    __builtin_memcpy(&bits, x + i, 4);
    bits &= 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

constexpr float kMostLevels = 127.0f;
constexpr int kLevelCandidates = 8;

// Error of rounding x * inverse: the sum of squares of what rounding drops, in four chains by
// element modulo 4.
inline float rounding_error(const float* x, float inverse) {
  float sums[4] = {};
  for (int i = 0; i < kBlockElements; ++i) {
    const float rounded = __builtin_fmaf(x[i], inverse, kRounder) - kRounder;
    const float dropped = __builtin_fmaf(x[i], inverse, -rounded);
    sums[i % 4] = __builtin_fmaf(dropped, dropped, sums[i % 4]);
  }
  return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

// The level of the block's largest magnitude that loses least; the highest of equals.
inline float best_levels(const float* x, float amax) {
  float losses[kLevelCandidates];
  float least = 0;
  for (int c = 0; c < kLevelCandidates; ++c) {
    const float levels = kMostLevels - static_cast<float>(c);
    losses[c] = rounding_error(x, levels / amax) / (levels * levels);
    if (c == 0 || losses[c] < least) least = losses[c];
  }
  int best = 0;
  while (losses[best] > least + kEqualLoss) ++best;
  return kMostLevels - static_cast<float>(best);
}

// q = x * inverse, rounded to nearest even, and the sums of both halves of q. Requires: products in
// [-128, 127].
inline void round_block(const float* x, float inverse, int8_t* q, int32_t* low, int32_t* high) {
  int32_t sums[2] = {0, 0};
  for (int i = 0; i < 32; ++i) {
    // The rounded integer is in the low bits.
    const float shifted = x[i] * inverse + kRounder;
    int32_t bits;
    __builtin_memcpy(&bits, &shifted, 4);
    q[i] = static_cast<int8_t>(bits - 0x4b400000);
    sums[i / 16] += q[i];
  }
  *low = sums[0];
  *high = sums[1];
}

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
