// The block structures of GGUF's quantised types, byte for byte, and half-precision conversion.
//
// A block is a run of weights of one row that share a scale. "K" types have super-blocks of 256
// weights with 6- or 8-bit scales per sub-block. Element order and formulas stand at each struct;
// d, m and dmin are IEEE half precision. Bytes from files may be unaligned: copy blocks, do not
// cast pointers.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md names the types; the layouts
// are those of ggml's files, checked against samples of them (tests/data/quants).
// Threads: plain values.
#pragma once

#include <bit>
#include <cstdint>

namespace strata {

// value[i] = d * (q - 8); q of element i is the low nibble of qs[i], of element 16 + i the high
// one.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

// value = d * q + m; nibbles as Q4_0.
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

// value = d * (q - 16); low four bits as Q4_0, the fifth of element i is bit i of qh
// (little-endian).
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

// value = d * q + m; bits as Q5_0.
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

// value = d * q.
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// Eight sub-blocks of 32: value = d * sc[s] * q - dmin * m[s]. `scales` packs eight 6-bit sc and
// eight 6-bit m (see k_scales). The low nibbles of qs[32 p ... 32 p + 31] are sub-block 2p, the
// high ones 2p + 1.
struct BlockQ4_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

// As Q4_K; the fifth bit of element l of sub-block s is bit s of qh[l].
struct BlockQ5_K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// Sixteen sub-blocks of 16: value = d * scales[e / 16] * (q - 32) for element e. With half h = e /
// 128, quarter t = e % 128 / 32 and l = e % 32: low nibble from ql[64 h + 32 (t % 2) + l], shifted
// by 4 for t >= 2; high two bits from qh[32 h + l], shifted by 2 t.
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
static_assert(sizeof(BlockQ6_K) == 210);

// The 6-bit scales and minima of Q4_K and Q5_K. Bytes 0..3 hold sc[0..3], bytes 4..7 m[0..3], in
// their low six bits; bytes 8..11 the low nibbles of sc[4..7] and, high, of m[4..7]; the top two
// bits of bytes 0..7 are the top bits of sc[4..7] and m[4..7].
struct KScales {
  uint8_t sc[8];
  uint8_t m[8];
};

inline KScales unpack_k_scales(const uint8_t packed[12]) {
  KScales out;
  for (int i = 0; i < 4; ++i) {
    out.sc[i] = packed[i] & 63;
    out.m[i] = packed[4 + i] & 63;
    out.sc[4 + i] = static_cast<uint8_t>((packed[8 + i] & 15) | (packed[i] >> 6) << 4);
    out.m[4 + i] = static_cast<uint8_t>(packed[8 + i] >> 4 | (packed[4 + i] >> 6) << 4);
  }
  return out;
}

inline void pack_k_scales(const KScales& in, uint8_t packed[12]) {
  for (int i = 0; i < 4; ++i) {
    packed[i] = static_cast<uint8_t>(in.sc[i] | (in.sc[4 + i] >> 4) << 6);
    packed[4 + i] = static_cast<uint8_t>(in.m[i] | (in.m[4 + i] >> 4) << 6);
    packed[8 + i] = static_cast<uint8_t>((in.sc[4 + i] & 15) | (in.m[4 + i] & 15) << 4);
  }
}

// Exact: every half has a float. NaN becomes a quiet NaN with the same payload, as F16C does.
inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 31;
  const uint32_t fraction = half & 0x3ff;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    const uint32_t quiet = fraction == 0 ? 0 : 0x400000;
    return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13 | quiet);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

inline float bfloat16_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

}  // namespace strata
