// The lanes of the matrix kernels in AVX-512 (F, BW, VL, DQ): names and bits as in
// matmul_lanes_scalar.h. With STRATA_MATMUL_VNNI, dots are vpdpbusd.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifdef STRATA_MATMUL_VNNI
#define STRATA_MATMUL_ISA matmul_avx512_vnni
#else
#define STRATA_MATMUL_ISA matmul_avx512
#endif

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

constexpr int kWidth = 16;
constexpr int kMaxColumns = 8;
// Columns whose dots advance side by side, to hide their latency.
constexpr int kDotColumns = 8;
constexpr int kVectorSlices = 1;
#ifdef STRATA_MATMUL_VNNI
// Measured against 1, though some registers spill (most in Q6_K): Q8_0 a fifth to a quarter more,
// Q6_K a tenth, the others up to a seventh.
constexpr int kJointSlices = 2;
#else
constexpr int kJointSlices = 1;
#endif
constexpr int kPlainSlices = 2;

using F = __m512;
using I = __m512i;

inline F set(float x) { return _mm512_set1_ps(x); }
inline F zero() { return _mm512_setzero_ps(); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F x, int n) {
  if (n >= 16) {
    _mm512_storeu_ps(p, x);
  } else {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), x);
  }
}
inline F mul(F a, F b) { return _mm512_mul_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }

inline __m256i load_256(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline __m128i load_128(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline F load_f16(const uint8_t* p) { return _mm512_cvtph_ps(load_256(p)); }
inline F load_bf16(const uint8_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load_256(p)), 16));
}
inline F load_u8(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load_128(p))); }
inline F load_i8(const uint8_t* p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load_128(p))); }
inline F to_float(I x) { return _mm512_cvtepi32_ps(x); }

inline I load_line(const uint8_t* p) { return _mm512_loadu_si512(p); }
inline I bit_and(I a, uint32_t mask) {
  return _mm512_and_si512(a, _mm512_set1_epi32(static_cast<int>(mask)));
}
inline I blend_bits(uint32_t mask, I a, I b) {
  // Truth table of (mask & a) | (~mask & b), with mask the first operand.
  return _mm512_ternarylogic_epi32(_mm512_set1_epi32(static_cast<int>(mask)), a, b, 0xca);
}
template <int kRight>
inline I shift(I a) {
  if constexpr (kRight > 0) {
    return _mm512_srli_epi32(a, kRight);
  } else if constexpr (kRight < 0) {
    return _mm512_slli_epi32(a, -kRight);
  } else {
    return a;
  }
}

template <int kBits>
inline I set_shifted(int32_t x) {
  return _mm512_slli_epi32(_mm512_set1_epi32(x), kBits);
}

inline I set_quad(const int8_t* q) {
  int32_t quad;
  __builtin_memcpy(&quad, q, 4);
  return _mm512_set1_epi32(quad);
}

#ifdef STRATA_MATMUL_VNNI

constexpr bool kDotOfOffsetBytes = true;

template <int kBits, int kCount, int kSlices, int kColumns>
inline void dot(const I (*quads)[8], int first, const int8_t* const* q, I (*sums)[kColumns]) {
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      const I x = set_quad(q[c] + 4 * i);
#pragma GCC unroll 2
      for (int s = 0; s < kSlices; ++s) {
        sums[s][c] = _mm512_dpbusd_epi32(sums[s][c], quads[s][first + i], x);
      }
    }
  }
}

#else

constexpr bool kDotOfOffsetBytes = false;

// vpmaddubsw saturates pair sums at 16 bits. How many of them may be added before widening:
// 8 * 2 * 15 * 127, 4 * 2 * 31 * 127 and 2 * 2 * 63 * 127 are all below 32,768.
template <int kBits>
constexpr int kRun = kBits == 4   ? 8
                     : kBits == 5 ? 4
                     : kBits == 6 ? 2
                                  : 1;

template <int kBits>
inline I pair_sums(I quad, I x) {
  if constexpr (kBits == 8) {
    // |w| unsigned times x with w's sign: at most 2 * 128 * 127.
    const I w = _mm512_xor_si512(quad, _mm512_set1_epi8(-128));
    const I signed_x = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
    return _mm512_maddubs_epi16(_mm512_abs_epi8(w), signed_x);
  } else {
    return _mm512_maddubs_epi16(quad, x);
  }
}

template <int kBits, int kCount, int kColumns>
inline void dot_of_slice(const I* quads, const int8_t* const* q, I* sums) {
  constexpr int kTerms = kRun<kBits> < kCount ? kRun<kBits> : kCount;
#pragma GCC unroll 8
  for (int i = 0; i < kCount; i += kTerms) {
    I pairs[kColumns];
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c)
      pairs[c] = pair_sums<kBits>(quads[i], set_quad(q[c] + 4 * i));
#pragma GCC unroll 8
    for (int r = 1; r < kTerms; ++r) {
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const I x = set_quad(q[c] + 4 * (i + r));
        pairs[c] = _mm512_add_epi16(pairs[c], pair_sums<kBits>(quads[i + r], x));
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      sums[c] = _mm512_add_epi32(sums[c], _mm512_madd_epi16(pairs[c], _mm512_set1_epi16(1)));
    }
  }
}

template <int kBits, int kCount, int kSlices, int kColumns>
inline void dot(const I (*quads)[8], int first, const int8_t* const* q, I (*sums)[kColumns]) {
#pragma GCC unroll 2
  for (int s = 0; s < kSlices; ++s) {
    dot_of_slice<kBits, kCount, kColumns>(quads[s] + first, q, sums[s]);
  }
}

#endif

// --- for rounding activations (quantise_lanes_avx.h) ---

inline F add(F a, F b) { return _mm512_add_ps(a, b); }
inline F sub(F a, F b) { return _mm512_sub_ps(a, b); }
// a * b - c, rounded once.
inline F fma_minus(F a, F b, F c) { return _mm512_fmsub_ps(a, b, c); }
// Both floats of the pair, again and again.
inline F set_pair(double pair) { return _mm512_castpd_ps(_mm512_set1_pd(pair)); }
inline F swap_neighbours(F a) { return _mm512_permute_ps(a, 0xb1); }
// x[0], x[0], x[1], x[1], ...
inline F set_each_twice(const float* x) {
  return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                               _mm512_castps256_ps512(_mm256_loadu_ps(x)));
}

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
