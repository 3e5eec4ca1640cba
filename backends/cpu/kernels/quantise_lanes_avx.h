// The vector steps of quantise_activations.h for the AVX paths. Candidates are tried in the lanes
// of matmul_lanes_avx2.h or _avx512.h, which come first; the rest is AVX2 on both: a block of 32 is
// too short for wider registers to pay. Meaning and bits as in matmul_lanes_scalar.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "backends/cpu/kernels/matmul_kernels.h"

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

inline __m256i magnitude_bits(const float* x) {
  return _mm256_and_si256(_mm256_castps_si256(_mm256_loadu_ps(x)), _mm256_set1_epi32(0x7fffffff));
}

inline int32_t largest_magnitude_bits(const float* x) {
  const __m256i low = _mm256_max_epi32(magnitude_bits(x), magnitude_bits(x + 8));
  const __m256i high = _mm256_max_epi32(magnitude_bits(x + 16), magnitude_bits(x + 24));
  const __m256i by_8 = _mm256_max_epi32(low, high);
  const __m128i by_4 =
      _mm_max_epi32(_mm256_castsi256_si128(by_8), _mm256_extracti128_si256(by_8, 1));
  const __m128i by_2 = _mm_max_epi32(by_4, _mm_shuffle_epi32(by_4, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(by_2, _mm_shuffle_epi32(by_2, 0xb1)));
}

// Each candidate's sum of squared rounding errors, in two neighbouring lanes: in one of the even
// elements, in the other of the odd ones. A step takes four elements, and each pair of them has
// chains of its own.
constexpr int kCandidatesPerRegister = kWidth / 2;

inline F add_squares(double pair, F inverse, F sum) {
  const F rounder = set(kRounder);
  const F x = set_pair(pair);
  const F dropped = fma_minus(x, inverse, sub(fma(x, inverse, rounder), rounder));
  return fma(dropped, dropped, sum);
}

inline double pair_at(const float* x) {
  double pair;
  __builtin_memcpy(&pair, x, 8);
  return pair;
}

// All eight candidates side by side.
inline float best_levels(const float* x, float amax) {
  constexpr int kRegisters = 8 / kCandidatesPerRegister;
  const __m256 levels =
      _mm256_setr_ps(127.0f, 126.0f, 125.0f, 124.0f, 123.0f, 122.0f, 121.0f, 120.0f);
  alignas(32) float inverses[8];
  _mm256_store_ps(inverses, _mm256_div_ps(levels, _mm256_set1_ps(amax)));
  alignas(64) float errors[16];
  for (int r = 0; r < kRegisters; ++r) {
    const F inverse = set_each_twice(inverses + r * kCandidatesPerRegister);
    F first = zero();
    F second = zero();
#pragma GCC unroll 8
    for (int i = 0; i < 32; i += 4) {
      first = add_squares(pair_at(x + i), inverse, first);
      second = add_squares(pair_at(x + i + 2), inverse, second);
    }
    const F both = add(first, second);
    store(errors + r * kWidth, add(both, swap_neighbours(both)), kWidth);
  }
  // Every second lane: one of each candidate.
  const __m256 sums = _mm256_permutevar8x32_ps(
      _mm256_shuffle_ps(_mm256_load_ps(errors), _mm256_load_ps(errors + 8), 0x88),
      _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7));
  const __m256 losses = _mm256_div_ps(sums, _mm256_mul_ps(levels, levels));
  __m256 least = _mm256_min_ps(losses, _mm256_permute2f128_ps(losses, losses, 1));
  least = _mm256_min_ps(least, _mm256_permute_ps(least, 0x4e));
  least = _mm256_min_ps(least, _mm256_permute_ps(least, 0xb1));
  const __m256 enough = _mm256_add_ps(least, _mm256_set1_ps(kEqualLoss));
  const int equal = _mm256_movemask_ps(_mm256_cmp_ps(losses, enough, _CMP_LE_OQ));
  return 127.0f - static_cast<float>(__builtin_ctz(static_cast<unsigned>(equal)));
}

inline void round_block(const float* x, float inverse, int8_t* q, int32_t* low, int32_t* high) {
  const __m256 scale = _mm256_set1_ps(inverse);
  __m256i rounded[4];  // to nearest even, as MXCSR is by the ABI
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    rounded[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), scale));
  }
  const __m256i halves_0 = _mm256_packs_epi32(rounded[0], rounded[1]);
  const __m256i halves_1 = _mm256_packs_epi32(rounded[2], rounded[3]);
  // The packs work within 128 bits: groups of four come out as 0 2 4 6 1 3 5 7.
  const __m256i mixed = _mm256_packs_epi16(halves_0, halves_1);
  const __m256i bytes =
      _mm256_permutevar8x32_epi32(mixed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), bytes);
  // Sums of eight bytes with 128 added to each.
  const __m256i sums =
      _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
  const __m256i pairs = _mm256_add_epi32(sums, _mm256_shuffle_epi32(sums, 0x4e));
  *low = _mm256_extract_epi32(pairs, 0) - 16 * 128;
  *high = _mm256_extract_epi32(pairs, 4) - 16 * 128;
}

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
