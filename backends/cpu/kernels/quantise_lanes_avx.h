// The two vector steps of quantise_activations.h in AVX2, also for the AVX-512 paths: a block of 32
// is too short for wider registers to pay. Included by matmul_lanes_avx2.h and _avx512.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

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
