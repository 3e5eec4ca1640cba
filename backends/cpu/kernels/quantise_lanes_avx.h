// The vector steps of quantise_activations.h in AVX2, also for the AVX-512 paths, which differ in
// one function only: a block of 32 is too short for wider registers to pay elsewhere. Meaning and
// bits as in matmul_lanes_scalar.h. Included by matmul_lanes_avx2.h and _avx512.h.
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

// Eight partial sums of the squares of what rounding x * inverse drops, in units of 2^-20: below
// 2^10 each before squaring, so 16 bits hold them.
#ifdef __AVX512DQ__
inline __m256i rounding_errors(const float* x, float inverse) {
  constexpr int kNearest = 0x08;  // x - round(x), no exceptions
  const __m512 scale = _mm512_set1_ps(inverse);
  const __m512 unit = _mm512_set1_ps(1024.0f);
  const __m512 low = _mm512_reduce_ps(_mm512_mul_ps(_mm512_loadu_ps(x), scale), kNearest);
  const __m512 high = _mm512_reduce_ps(_mm512_mul_ps(_mm512_loadu_ps(x + 16), scale), kNearest);
  const __m512i units = _mm512_packs_epi32(_mm512_cvttps_epi32(_mm512_mul_ps(low, unit)),
                                           _mm512_cvttps_epi32(_mm512_mul_ps(high, unit)));
  const __m512i squares = _mm512_madd_epi16(units, units);
  return _mm256_add_epi32(_mm512_castsi512_si256(squares), _mm512_extracti64x4_epi64(squares, 1));
}
#else
inline __m256i dropped_units(const float* x, __m256 scale) {
  const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(x), scale);
  const __m256 rounded = _mm256_round_ps(scaled, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_cvttps_epi32(
      _mm256_mul_ps(_mm256_sub_ps(scaled, rounded), _mm256_set1_ps(1024.0f)));
}
inline __m256i rounding_errors(const float* x, float inverse) {
  const __m256 scale = _mm256_set1_ps(inverse);
  const __m256i low = _mm256_packs_epi32(dropped_units(x, scale), dropped_units(x + 8, scale));
  const __m256i high =
      _mm256_packs_epi32(dropped_units(x + 16, scale), dropped_units(x + 24, scale));
  return _mm256_add_epi32(_mm256_madd_epi16(low, low), _mm256_madd_epi16(high, high));
}
#endif

// All eight candidates side by side.
inline float best_levels(const float* x, float amax) {
  const __m256 levels =
      _mm256_setr_ps(127.0f, 126.0f, 125.0f, 124.0f, 123.0f, 122.0f, 121.0f, 120.0f);
  alignas(32) float inverses[8];
  _mm256_store_ps(inverses, _mm256_div_ps(levels, _mm256_set1_ps(amax)));
  __m256i errors[8];
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) errors[c] = rounding_errors(x, inverses[c]);
  const __m256i first = _mm256_hadd_epi32(_mm256_hadd_epi32(errors[0], errors[1]),
                                          _mm256_hadd_epi32(errors[2], errors[3]));
  const __m256i last = _mm256_hadd_epi32(_mm256_hadd_epi32(errors[4], errors[5]),
                                         _mm256_hadd_epi32(errors[6], errors[7]));
  const __m256i sums = _mm256_add_epi32(_mm256_permute2x128_si256(first, last, 0x20),
                                        _mm256_permute2x128_si256(first, last, 0x31));
  const __m256 losses = _mm256_div_ps(_mm256_cvtepi32_ps(sums), _mm256_mul_ps(levels, levels));
  __m256 least = _mm256_min_ps(losses, _mm256_permute2f128_ps(losses, losses, 1));
  least = _mm256_min_ps(least, _mm256_permute_ps(least, 0x4e));
  least = _mm256_min_ps(least, _mm256_permute_ps(least, 0xb1));
  const int equal = _mm256_movemask_ps(_mm256_cmp_ps(losses, least, _CMP_EQ_OQ));
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
