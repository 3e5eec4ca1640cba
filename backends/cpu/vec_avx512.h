// The vector interface in AVX-512 (F, BW, DQ, VL): 16 lanes are one register.
//
// Names and bits as in vec_scalar.h, where each function's meaning stands.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#ifdef STRATA_CPU_ISA
#error "one vector header per translation unit"
#endif
#define STRATA_CPU_ISA avx512

namespace strata::cpu::avx512 {

inline constexpr int kLanes = 16;
// 32 registers: 24 accumulators leave 8 for operands.
inline constexpr int kTileRows = 6;
inline constexpr int kTileVectors = 4;

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct Mask16 {
  __mmask16 v;
};

// --- lanes in and out -------------------------------------------------------------------------

// Lanes [0, n), n of any size.
inline __mmask16 first_lanes(int n) {
  if (n >= 16) return static_cast<__mmask16>(0xffff);
  return static_cast<__mmask16>(n <= 0 ? 0u : (1u << n) - 1u);
}

inline F32x16 broadcast(float x) { return {_mm512_set1_ps(x)}; }
inline F32x16 zero_f32() { return {_mm512_setzero_ps()}; }
inline F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline F32x16 load_n(const float* p, int n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store(float* p, F32x16 x) { _mm512_storeu_ps(p, x.v); }
inline void store_n(float* p, F32x16 x, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), x.v); }

inline I32x16 broadcast_i32(int32_t x) { return {_mm512_set1_epi32(x)}; }
inline I32x16 load_i32(const int32_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_i32(int32_t* p, I32x16 x) { _mm512_storeu_si512(p, x.v); }
inline I32x16 load_i8(const int8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline I32x16 load_u8(const uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_i8(int8_t* p, I32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}

// --- float arithmetic -------------------------------------------------------------------------

inline F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
inline F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline F32x16 sqrt(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
inline F32x16 neg(F32x16 a) { return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))}; }
inline F32x16 abs(F32x16 a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
inline F32x16 copy_sign(F32x16 a, F32x16 b) {
  const __m512 sign = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(sign, a.v), _mm512_and_ps(sign, b.v))};
}
inline F32x16 swap_pairs(F32x16 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }

// --- comparison -------------------------------------------------------------------------------

inline Mask16 less(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
inline Mask16 lane_range(int begin, int end) {
  return {static_cast<__mmask16>(first_lanes(end) & ~first_lanes(begin))};
}
inline F32x16 select(Mask16 m, F32x16 a, F32x16 b) { return {_mm512_mask_blend_ps(m.v, b.v, a.v)}; }

// --- integers ---------------------------------------------------------------------------------

inline I32x16 add(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline I32x16 bit_and(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
template <int kBits>
inline I32x16 shift_right(I32x16 a) {
  return {_mm512_srli_epi32(a.v, kBits)};
}

// --- conversion -------------------------------------------------------------------------------

inline I32x16 to_i32(F32x16 x) { return {_mm512_cvtps_epi32(x.v)}; }
inline F32x16 to_f32(I32x16 x) { return {_mm512_cvtepi32_ps(x.v)}; }
// A permutation looks at the low four bits of its indices alone.
inline F32x16 nibble_to_f32(I32x16 x) {
  const __m512 table = _mm512_setr_ps(-8.0f, -7.0f, -6.0f, -5.0f, -4.0f, -3.0f, -2.0f, -1.0f, 0.0f,
                                      1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f, 7.0f);
  return {_mm512_permutexvar_ps(x.v, table)};
}
// scalef rounds once, like the two multiplications of the other paths, of which the first is exact.
inline F32x16 scale_by_power(F32x16 x, I32x16 n) {
  return {_mm512_scalef_ps(x.v, _mm512_cvtepi32_ps(n.v))};
}

inline float f16_to_f32(uint16_t h) { return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h))); }
inline uint16_t f32_to_f16(float x) {
  const __m128i half = _mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT);
  return static_cast<uint16_t>(_mm_extract_epi16(half, 0));
}
inline F32x16 load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline F32x16 load_f16_n(const uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
inline void store_f16(uint16_t* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_f16_n(uint16_t* p, F32x16 x, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline F32x16 load_bf16(const uint16_t* p) {
  const __m512i wide =
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}

inline float first_lane(F32x16 x) { return _mm512_cvtss_f32(x.v); }

// --- reductions -------------------------------------------------------------------------------

inline float reduce_tree(F32x16 x) {
  const __m256 by_8 = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 by_4 = _mm_add_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps(by_8, 1));
  const __m128 by_2 = _mm_add_ps(by_4, _mm_movehl_ps(by_4, by_4));
  return _mm_cvtss_f32(_mm_add_ss(by_2, _mm_shuffle_ps(by_2, by_2, 1)));
}
inline float reduce_max(F32x16 x) {
  const __m256 by_8 = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 by_4 = _mm_max_ps(_mm256_castps256_ps128(by_8), _mm256_extractf128_ps(by_8, 1));
  const __m128 by_2 = _mm_max_ps(by_4, _mm_movehl_ps(by_4, by_4));
  return _mm_cvtss_f32(_mm_max_ss(by_2, _mm_shuffle_ps(by_2, by_2, 1)));
}

}  // namespace strata::cpu::avx512
