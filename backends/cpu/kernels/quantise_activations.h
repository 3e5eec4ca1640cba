// Rounds a row of activations to 8 bits per 32: written once, compiled with each path's flags.
//
// d = amax / 127, q = x * (127 / amax) rounded to nearest even, s = d * sum(q). Every step is one
// IEEE operation or an exact integer, and the maximum does not depend on order, so that the
// compiler may vectorise as it likes. Values that are not finite show: the block's scale is NaN and
// its q are zero, so that each product that reads it is NaN. A block whose magnitudes are all below
// 2^-120 is zero: 127 / amax would overflow, and weights cannot lift it to anything that matters.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/matmul_kernels.h"

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

inline float float_of(uint32_t bits) {
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

inline void quantise_block(const float* x, ActivationBlock* block) {
  constexpr int32_t kInfinity = 0x7f800000;
  constexpr int32_t kLeast = 0x03800000;  // 2^-120
  int32_t bits[kBlockElements];
  __builtin_memcpy(bits, x, sizeof(bits));
  int32_t largest = 0;
  for (int i = 0; i < kBlockElements; ++i) {
    const int32_t magnitude = bits[i] & 0x7fffffff;
    largest = magnitude > largest ? magnitude : largest;
  }
  const bool usable = largest >= kLeast && largest < kInfinity;
  const float amax = usable ? float_of(static_cast<uint32_t>(largest)) : 127.0f;
  const float inverse = usable ? 127.0f / amax : 0.0f;
  const float d = usable ? amax / 127.0f : largest < kInfinity ? 0.0f : float_of(0x7fc00000);

  // 1.5 * 2^23: adding it leaves the rounded integer in the low bits.
  constexpr float kRounder = 12582912.0f;
  constexpr int32_t kRounderBits = 0x4b400000;
  int32_t q[kBlockElements];
  for (int i = 0; i < kBlockElements; ++i) {
    const float rounded = x[i] * inverse + kRounder;
    int32_t rounded_bits;
    __builtin_memcpy(&rounded_bits, &rounded, 4);
    q[i] = usable ? rounded_bits - kRounderBits : 0;
  }
  int32_t low = 0;
  int32_t high = 0;
  for (int i = 0; i < 16; ++i) low += q[i];
  for (int i = 16; i < 32; ++i) high += q[i];
  for (int i = 0; i < kBlockElements; ++i) block->q[i] = static_cast<int8_t>(q[i]);
  block->d = d;
  block->s = d * static_cast<float>(low + high);
  block->negative_sum = -(low + high);
  block->negative_sum_low = -low;
  block->negative_sum_high = -high;
  block->unused[0] = block->unused[1] = block->unused[2] = 0;
}

inline void quantise_row(const float* x, int64_t k, ActivationBlock* blocks) {
  for (int64_t b = 0; b < k / kBlockElements; ++b) quantise_block(x + 32 * b, blocks + b);
}

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
