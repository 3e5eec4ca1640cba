// The vector interface of the kernels, in plain C++: the meaning that the other paths must match.
//
// F32x16 is 16 logical lanes of float, I32x16 of int32_t, Mask16 of bool. vec_avx2.h and
// vec_avx512.h have the same names with the same bits; kernels/*.h are written once over them and
// compiled once per header, inside the namespace STRATA_CPU_ISA. Adding a path is a matter of one
// such header. Rounding is to nearest even, subnormals are kept (MXCSR as the ABI has it), and the
// file is compiled with -ffp-contract=off: one rounding for each operation that is written.
//
// Only intrinsics, <cstdint> and <cstddef> may be included here and by the kernels: an inline
// function of the standard library, compiled with this file's flags, could be the copy that the
// linker keeps for the whole program.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef STRATA_CPU_ISA
#error "one vector header per translation unit"
#endif
#define STRATA_CPU_ISA scalar

namespace strata::cpu::scalar {

inline constexpr int kLanes = 16;
// The shape of a register tile of accumulators: rows x vectors of 16 lanes.
inline constexpr int kTileRows = 2;
inline constexpr int kTileVectors = 1;

struct F32x16 {
  float v[16];
};
struct I32x16 {
  int32_t v[16];
};
struct Mask16 {
  bool v[16];
};

// --- lanes in and out -------------------------------------------------------------------------

inline F32x16 broadcast(float x) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = x;
  return r;
}
inline F32x16 zero_f32() { return broadcast(0.0f); }
inline F32x16 load(const float* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i];
  return r;
}
// The first n lanes, 0 <= n <= 16; the others are zero and their memory is not touched.
inline F32x16 load_n(const float* p, int n) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = i < n ? p[i] : 0.0f;
  return r;
}
inline void store(float* p, F32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = x.v[i];
}
inline void store_n(float* p, F32x16 x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}

inline I32x16 broadcast_i32(int32_t x) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = x;
  return r;
}
inline I32x16 load_i32(const int32_t* p) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i];
  return r;
}
inline void store_i32(int32_t* p, I32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = x.v[i];
}
// 16 signed bytes, widened.
inline I32x16 load_i8(const int8_t* p) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i];
  return r;
}
inline I32x16 load_u8(const uint8_t* p) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = p[i];
  return r;
}
// Requires: lanes in [-128, 127].
inline void store_i8(int8_t* p, I32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(x.v[i]);
}

// --- float arithmetic -------------------------------------------------------------------------

inline F32x16 add(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
  return a;
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] -= b.v[i];
  return a;
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] *= b.v[i];
  return a;
}
inline F32x16 div(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] /= b.v[i];
  return a;
}
// a * b + c, rounded once.
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  for (int i = 0; i < 16; ++i) c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return c;
}
// c - a * b, rounded once.
inline F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  for (int i = 0; i < 16; ++i) c.v[i] = __builtin_fmaf(-a.v[i], b.v[i], c.v[i]);
  return c;
}
// a < b ? a : b, so the second where either is NaN.
inline F32x16 min(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
// a > b ? a : b, so the second where either is NaN.
inline F32x16 max(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline F32x16 sqrt(F32x16 a) {
  for (int i = 0; i < 16; ++i) a.v[i] = __builtin_sqrtf(a.v[i]);
  return a;
}
inline F32x16 neg(F32x16 a) {
  for (int i = 0; i < 16; ++i) a.v[i] = -a.v[i];
  return a;
}
inline F32x16 abs(F32x16 a) {
  for (int i = 0; i < 16; ++i) a.v[i] = __builtin_fabsf(a.v[i]);
  return a;
}
// |a| with the sign of b.
inline F32x16 copy_sign(F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] = __builtin_copysignf(a.v[i], b.v[i]);
  return a;
}
// Lanes 0 and 1 exchanged, 2 and 3, and so on.
inline F32x16 swap_pairs(F32x16 a) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = a.v[i ^ 1];
  return r;
}

// --- comparison -------------------------------------------------------------------------------

// False where either is NaN.
inline Mask16 less(F32x16 a, F32x16 b) {
  Mask16 m;
  for (int i = 0; i < 16; ++i) m.v[i] = a.v[i] < b.v[i];
  return m;
}
// Lanes [begin, end).
inline Mask16 lane_range(int begin, int end) {
  Mask16 m;
  for (int i = 0; i < 16; ++i) m.v[i] = i >= begin && i < end;
  return m;
}
// m ? a : b. A choice of bits, not arithmetic: NaN in the other is harmless.
inline F32x16 select(Mask16 m, F32x16 a, F32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] = m.v[i] ? a.v[i] : b.v[i];
  return a;
}

// --- integers ---------------------------------------------------------------------------------

inline I32x16 add(I32x16 a, I32x16 b) {
  for (int i = 0; i < 16; ++i) {
    a.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) + static_cast<uint32_t>(b.v[i]));
  }
  return a;
}
inline I32x16 bit_and(I32x16 a, I32x16 b) {
  for (int i = 0; i < 16; ++i) a.v[i] &= b.v[i];
  return a;
}
// Logical: zeros come in.
template <int kBits>
inline I32x16 shift_right(I32x16 a) {
  for (int i = 0; i < 16; ++i) {
    a.v[i] = static_cast<int32_t>(static_cast<uint32_t>(a.v[i]) >> kBits);
  }
  return a;
}

// --- conversion -------------------------------------------------------------------------------

// To nearest even. Requires |x| <= 2^22, else the lane's value is unspecified.
inline I32x16 to_i32(F32x16 x) {
  I32x16 r;
  for (int i = 0; i < 16; ++i) {
    // Adding 1.5 * 2^23 leaves no bits behind the point.
    const float rounded = (x.v[i] + 12582912.0f) - 12582912.0f;
    r.v[i] = __builtin_fabsf(rounded) <= 4194304.0f ? static_cast<int32_t>(rounded) : 0;
  }
  return r;
}
inline F32x16 to_f32(I32x16 x) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(x.v[i]);
  return r;
}
// The low four bits, less 8.
inline F32x16 nibble_to_f32(I32x16 x) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>((x.v[i] & 15) - 8);
  return r;
}
// x * 2^n, rounded once, subnormal results included. Requires -252 <= n <= 254 and that
// x * 2^(n / 2) is normal, or x zero, infinite or NaN.
inline F32x16 scale_by_power(F32x16 x, I32x16 n) {
  for (int i = 0; i < 16; ++i) {
    const int32_t half = n.v[i] >> 1;
    const uint32_t low_bits = (static_cast<uint32_t>(half) + 127u) << 23;
    const uint32_t high_bits = (static_cast<uint32_t>(n.v[i]) - static_cast<uint32_t>(half) + 127u)
                               << 23;
    x.v[i] = x.v[i] * __builtin_bit_cast(float, low_bits) * __builtin_bit_cast(float, high_bits);
  }
  return x;
}

inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t mantissa = h & 1023u;
  if (exponent == 0) {  // zero or subnormal: an exact multiple of 2^-24
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, value) | sign);
  }
  if (exponent == 31) {  // infinity, or a NaN made quiet
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return __builtin_bit_cast(float, sign | 0x7f800000u | (mantissa << 13) | quiet);
  }
  return __builtin_bit_cast(float, sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

// To nearest even, to infinity from 65520 on, subnormals kept, NaN made quiet.
inline uint16_t f32_to_f16(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 0.5 puts the f16 subnormal's last place at the float's last place.
    const float rounded = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, rounded) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

inline F32x16 load_f16(const uint16_t* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = f16_to_f32(p[i]);
  return r;
}
inline F32x16 load_f16_n(const uint16_t* p, int n) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) r.v[i] = i < n ? f16_to_f32(p[i]) : 0.0f;
  return r;
}
inline void store_f16(uint16_t* p, F32x16 x) {
  for (int i = 0; i < 16; ++i) p[i] = f32_to_f16(x.v[i]);
}
inline void store_f16_n(uint16_t* p, F32x16 x, int n) {
  for (int i = 0; i < n; ++i) p[i] = f32_to_f16(x.v[i]);
}
inline F32x16 load_bf16(const uint16_t* p) {
  F32x16 r;
  for (int i = 0; i < 16; ++i) {
    r.v[i] = __builtin_bit_cast(float, static_cast<uint32_t>(p[i]) << 16);
  }
  return r;
}

inline float first_lane(F32x16 x) { return x.v[0]; }

// --- reductions -------------------------------------------------------------------------------

// Folds 16 partial sums: halves onto each other, 8, 4, 2, 1. The one tree of the kernel contract.
inline float reduce_tree(F32x16 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x.v[i] = x.v[i] + x.v[i + width];
  }
  return x.v[0];
}
// The largest lane by max() on the same tree. NaN lanes may be dropped or win.
inline float reduce_max(F32x16 x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) {
      x.v[i] = x.v[i] > x.v[i + width] ? x.v[i] : x.v[i + width];
    }
  }
  return x.v[0];
}

}  // namespace strata::cpu::scalar
