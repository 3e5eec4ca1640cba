// The vector interface in AVX2, FMA and F16C: 16 lanes are two registers of eight.
//
// Names and bits as in vec_scalar.h, where each function's meaning stands.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#ifdef STRATA_CPU_ISA
#error "one vector header per translation unit"
#endif
#define STRATA_CPU_ISA avx2

namespace strata::cpu::avx2 {

inline constexpr int kLanes = 16;
// 16 registers of 8 lanes: 6 accumulators of 16 lanes take 12 and leave 4 for operands.
inline constexpr int kTileRows = 3;
inline constexpr int kTileVectors = 2;

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct Mask16 {
  __m256 lo, hi;  // all bits of a lane set or clear
};

// --- lanes in and out -------------------------------------------------------------------------

inline F32x16 broadcast(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline F32x16 zero_f32() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}

// Lanes [0, n) of eight.
inline __m256i first_of_8(int n) {
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), index);
}
inline F32x16 load_n(const float* p, int n) {
  return {_mm256_maskload_ps(p, first_of_8(n)), _mm256_maskload_ps(p + 8, first_of_8(n - 8))};
}
inline void store_n(float* p, F32x16 x, int n) {
  _mm256_maskstore_ps(p, first_of_8(n), x.lo);
  _mm256_maskstore_ps(p + 8, first_of_8(n - 8), x.hi);
}

inline I32x16 broadcast_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline I32x16 load_i32(const int32_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
}
inline void store_i32(int32_t* p, I32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.lo);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.hi);
}
inline I32x16 load_i8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
}
inline I32x16 load_u8(const uint8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
}
inline void store_i8(int8_t* p, I32x16 x) {
  // packs works within 128-bit halves; the permutation puts the groups of four in order.
  const __m256i words = _mm256_packs_epi32(x.lo, x.hi);
  const __m256i bytes = _mm256_packs_epi16(words, words);
  const __m256i ordered =
      _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 0, 0, 0, 0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(ordered));
}

// --- float arithmetic -------------------------------------------------------------------------

inline F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 sqrt(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
inline F32x16 neg(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, sign), _mm256_xor_ps(a.hi, sign)};
}
inline F32x16 abs(F32x16 a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
inline F32x16 copy_sign(F32x16 a, F32x16 b) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(sign, a.lo), _mm256_and_ps(sign, b.lo)),
          _mm256_or_ps(_mm256_andnot_ps(sign, a.hi), _mm256_and_ps(sign, b.hi))};
}
inline F32x16 swap_pairs(F32x16 a) {
  return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}

// --- comparison -------------------------------------------------------------------------------

inline Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
inline Mask16 lane_range(int begin, int end) {
  return {_mm256_castsi256_ps(_mm256_andnot_si256(first_of_8(begin), first_of_8(end))),
          _mm256_castsi256_ps(_mm256_andnot_si256(first_of_8(begin - 8), first_of_8(end - 8)))};
}
inline F32x16 select(Mask16 m, F32x16 a, F32x16 b) {
  return {_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

// --- integers ---------------------------------------------------------------------------------

inline I32x16 add(I32x16 a, I32x16 b) {
  return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
}
inline I32x16 bit_and(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
template <int kBits>
inline I32x16 shift_right(I32x16 a) {
  return {_mm256_srli_epi32(a.lo, kBits), _mm256_srli_epi32(a.hi, kBits)};
}

// --- conversion -------------------------------------------------------------------------------

inline I32x16 to_i32(F32x16 x) { return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)}; }
inline F32x16 to_f32(I32x16 x) { return {_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)}; }
inline F32x16 nibble_to_f32(I32x16 x) {
  return to_f32(add(bit_and(x, broadcast_i32(15)), broadcast_i32(-8)));
}

// 2^n as a float. Requires -126 <= n <= 127.
inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 scale_8_by_power(__m256 x, __m256i n) {
  const __m256i half = _mm256_srai_epi32(n, 1);
  const __m256 scaled = _mm256_mul_ps(x, power_of_two(half));
  return _mm256_mul_ps(scaled, power_of_two(_mm256_sub_epi32(n, half)));
}
inline F32x16 scale_by_power(F32x16 x, I32x16 n) {
  return {scale_8_by_power(x.lo, n.lo), scale_8_by_power(x.hi, n.hi)};
}

inline float f16_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
inline uint16_t f32_to_f16(float x) {
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_extract_epi16(half, 0));
}
inline F32x16 load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline F32x16 load_f16_n(const uint16_t* p, int n) {
  uint16_t lanes[16] = {};
  __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_f16(lanes);
}
inline void store_f16(uint16_t* p, F32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_f16_n(uint16_t* p, F32x16 x, int n) {
  uint16_t lanes[16];
  store_f16(lanes, x);
  __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(uint16_t));
}
inline F32x16 load_bf16(const uint16_t* p) {
  const __m256i lo = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i hi =
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
}

inline float first_lane(F32x16 x) { return _mm256_cvtss_f32(x.lo); }

// --- reductions -------------------------------------------------------------------------------

inline float reduce_tree(F32x16 x) {
  const __m256 by_8 = _mm256_add_ps(x.lo, x.hi);
  const __m128 by_4 = _mm_add_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps(by_8, 1));
  const __m128 by_2 = _mm_add_ps(by_4, _mm_movehl_ps(by_4, by_4));
  return _mm_cvtss_f32(_mm_add_ss(by_2, _mm_shuffle_ps(by_2, by_2, 1)));
}
inline float reduce_max(F32x16 x) {
  const __m256 by_8 = _mm256_max_ps(x.lo, x.hi);
  const __m128 by_4 = _mm_max_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps(by_8, 1));
  const __m128 by_2 = _mm_max_ps(by_4, _mm_movehl_ps(by_4, by_4));
  return _mm_cvtss_f32(_mm_max_ss(by_2, _mm_shuffle_ps(by_2, by_2, 1)));
}

}  // namespace strata::cpu::avx2
