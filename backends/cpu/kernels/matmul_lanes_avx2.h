// The lanes of the matrix kernels in AVX2 with FMA and F16C: names and bits as in
// matmul_lanes_scalar.h, 8 rows to a register. With STRATA_MATMUL_VNNI, dots are AVX-VNNI's.
#pragma once

#include <immintrin.h>

#include <cstdint>

#ifdef STRATA_MATMUL_VNNI
#define STRATA_MATMUL_ISA matmul_avx2_vnni
#else
#define STRATA_MATMUL_ISA matmul_avx2
#endif

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

constexpr int kWidth = 8;
// Eight quads, four sums and four for the rest: all 16 registers.
constexpr int kMaxColumns = 4;
// Columns whose dots advance side by side, to hide their latency.
constexpr int kDotColumns = 2;
constexpr int kVectorSlices = 2;
constexpr int kJointSlices = 1;
constexpr int kPlainSlices = 2;

using F = __m256;
using I = __m256i;

inline F set(float x) { return _mm256_set1_ps(x); }
inline F zero() { return _mm256_setzero_ps(); }
inline F load(const float* p) { return _mm256_loadu_ps(p); }
inline void store(float* p, F x, int n) {
  if (n >= 8) {
    _mm256_storeu_ps(p, x);
  } else {
    const I lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(p, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lanes), x);
  }
}
inline F mul(F a, F b) { return _mm256_mul_ps(a, b); }
inline F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
inline F negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }

inline __m128i load_128(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline __m128i load_64(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
inline F load_f16(const uint8_t* p) { return _mm256_cvtph_ps(load_128(p)); }
inline F load_bf16(const uint8_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_128(p)), 16));
}
inline F load_u8(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load_64(p))); }
inline F load_i8(const uint8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load_64(p))); }
inline F to_float(I x) { return _mm256_cvtepi32_ps(x); }

inline I load_line(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline I bit_and(I a, uint32_t mask) {
  return _mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(mask)));
}
inline I blend_bits(uint32_t mask, I a, I b) {
  const I m = _mm256_set1_epi32(static_cast<int>(mask));
  return _mm256_or_si256(_mm256_and_si256(m, a), _mm256_andnot_si256(m, b));
}
template <int kRight>
inline I shift(I a) {
  if constexpr (kRight > 0) {
    return _mm256_srli_epi32(a, kRight);
  } else if constexpr (kRight < 0) {
    return _mm256_slli_epi32(a, -kRight);
  } else {
    return a;
  }
}

template <int kBits>
inline I set_shifted(int32_t x) {
  return _mm256_slli_epi32(_mm256_set1_epi32(x), kBits);
}

inline I set_quad(const int8_t* q) {
  int32_t quad;
  __builtin_memcpy(&quad, q, 4);
  return _mm256_set1_epi32(quad);
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
        sums[s][c] = _mm256_dpbusd_avx_epi32(sums[s][c], quads[s][first + i], x);
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
    const I w = _mm256_xor_si256(quad, _mm256_set1_epi8(-128));
    return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  } else {
    return _mm256_maddubs_epi16(quad, x);
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
        pairs[c] = _mm256_add_epi16(pairs[c], pair_sums<kBits>(quads[i + r], x));
      }
    }
#pragma GCC unroll 8
    for (int c = 0; c < kColumns; ++c) {
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(pairs[c], _mm256_set1_epi16(1)));
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

inline F add(F a, F b) { return _mm256_add_ps(a, b); }
inline F sub(F a, F b) { return _mm256_sub_ps(a, b); }
// a * b - c, rounded once.
inline F fma_minus(F a, F b, F c) { return _mm256_fmsub_ps(a, b, c); }
// Both floats of the pair, again and again.
inline F set_pair(double pair) { return _mm256_castpd_ps(_mm256_set1_pd(pair)); }
inline F swap_neighbours(F a) { return _mm256_permute_ps(a, 0xb1); }
// x[0], x[0], x[1], x[1], ...
inline F set_each_twice(const float* x) {
  return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(x)),
                                  _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3));
}

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
