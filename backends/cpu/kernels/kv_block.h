// The layout of keys and values inside a block of 16 positions, and how they are written and read.
//
// A block holds its heads one after the other. Within a head of dimension d:
//   K f32, f16   [d][16 positions]: lanes are positions
//   V f32, f16   [16 positions][d]: lanes are dimensions
//   K q8_0       f16 scales [groups][16], then int8 [d][16]
//   V q8_0       f16 scales [16][groups], then int8 [16][d]
//   K q4_0       f16 scales [groups][16], then [d / 2][16] bytes: low half dimension 2i, high 2i +
//   1 V q4_0       f16 scales [16][groups], then [16][d / 2] bytes: low half dimension i, high i +
//   d/2
// A position's d dimensions are quantised in d / 32 groups, as equal as can be, so that the bytes
// never exceed those of the GGUF type. Values are q * scale, for q4_0 (q - 8) * scale.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

inline constexpr int kBlockPositions = 16;

inline int kv_groups(int head_dim) { return head_dim / 32; }
inline int kv_group_begin(int head_dim, int group) {
  return group * head_dim / kv_groups(head_dim);
}

// Bytes of one head in a block.
inline size_t kv_head_bytes(KvType type, int head_dim) {
  const size_t elements = static_cast<size_t>(head_dim) * kBlockPositions;
  const size_t scales = static_cast<size_t>(kv_groups(head_dim)) * kBlockPositions * 2;
  switch (type) {
    case KvType::f32:
      return elements * 4;
    case KvType::f16:
      return elements * 2;
    case KvType::q8_0:
      return elements + scales;
    case KvType::q4_0:
      return elements / 2 + scales;
  }
  return 0;
}

inline std::byte* kv_head(const KvCacheView& cache, int64_t block, int head) {
  return cache.data + static_cast<size_t>(block) * cache.block_bytes +
         static_cast<size_t>(head) * kv_head_bytes(cache.type, cache.head_dim);
}

// --- writing ----------------------------------------------------------------------------------

// To the nearest even integer. Requires |x| < 2^22; NaN gives 0.
inline int32_t round_even(float x) {
  const float rounded = (x + 12582912.0f) - 12582912.0f;
  return rounded >= -4194304.0f && rounded <= 4194304.0f ? static_cast<int32_t>(rounded) : 0;
}

inline int32_t clamp(int32_t x, int32_t low, int32_t high) {
  return x < low ? low : (x > high ? high : x);
}

// The scale of a group as f16: largest magnitude / 127 for q8_0; for q4_0 the value of largest
// magnitude / -8. NaN if a value is not finite, so that what reads it shows.
inline uint16_t group_scale(const float* x, int n, KvType type) {
  float largest = 0.0f;
  bool finite = true;
  for (int i = 0; i < n; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    if (magnitude > __builtin_fabsf(largest)) largest = x[i];
    finite = finite && magnitude < __builtin_inff();
  }
  if (!finite) return 0x7e00;
  return f32_to_f16(type == KvType::q8_0 ? __builtin_fabsf(largest) / 127.0f : largest / -8.0f);
}

// Calls put(dimension, group, q) for each dimension and scale(group, f16) for each group.
template <typename PutScale, typename Put>
inline void quantise_head(KvType type, int head_dim, const float* x, PutScale put_scale, Put put) {
  const int groups = kv_groups(head_dim);
  for (int group = 0; group < groups; ++group) {
    const int begin = kv_group_begin(head_dim, group);
    const int end = kv_group_begin(head_dim, group + 1);
    const uint16_t half = group_scale(x + begin, end - begin, type);
    put_scale(group, half);
    const float scale = f16_to_f32(half);
    const float inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
    for (int i = begin; i < end; ++i) {
      const int32_t q = round_even(x[i] * inverse);
      put(i, type == KvType::q8_0 ? clamp(q, -127, 127) : clamp(q + 8, 0, 15));
    }
  }
}

// Half of a byte: the high one if `high`.
inline void put_nibble(uint8_t* byte, bool high, int32_t q) {
  const uint32_t kept = *byte & (high ? 0x0fu : 0xf0u);
  *byte = static_cast<uint8_t>(kept | (static_cast<uint32_t>(q) << (high ? 4 : 0)));
}

inline void write_k(const KvCacheView& cache, int64_t cell, int32_t head, const float* k) {
  std::byte* base = kv_head(cache, cell / kBlockPositions, head);
  const int position = static_cast<int>(cell % kBlockPositions);
  const int d = cache.head_dim;
  if (cache.type == KvType::f32) {
    float* to = reinterpret_cast<float*>(base) + position;
    for (int i = 0; i < d; ++i) to[i * kBlockPositions] = k[i];
    return;
  }
  uint16_t* halves = reinterpret_cast<uint16_t*>(base) + position;
  if (cache.type == KvType::f16) {
    for (int i = 0; i < d; ++i) halves[i * kBlockPositions] = f32_to_f16(k[i]);
    return;
  }
  uint8_t* bytes = reinterpret_cast<uint8_t*>(base) + kv_groups(d) * kBlockPositions * 2 + position;
  const auto put_scale = [&](int group, uint16_t scale) {
    halves[group * kBlockPositions] = scale;
  };
  if (cache.type == KvType::q8_0) {
    quantise_head(cache.type, d, k, put_scale,
                  [&](int i, int32_t q) { bytes[i * kBlockPositions] = static_cast<uint8_t>(q); });
  } else {
    quantise_head(cache.type, d, k, put_scale, [&](int i, int32_t q) {
      put_nibble(bytes + i / 2 * kBlockPositions, i % 2 != 0, q);
    });
  }
}

inline void write_v(const KvCacheView& cache, int64_t cell, int32_t head, const float* v) {
  std::byte* base = kv_head(cache, cell / kBlockPositions, head);
  const int position = static_cast<int>(cell % kBlockPositions);
  const int d = cache.head_dim;
  if (cache.type == KvType::f32) {
    float* to = reinterpret_cast<float*>(base) + position * d;
    for (int i = 0; i < d; ++i) to[i] = v[i];
    return;
  }
  if (cache.type == KvType::f16) {
    uint16_t* to = reinterpret_cast<uint16_t*>(base) + position * d;
    for (int i = 0; i < d; i += 16) {
      const int count = d - i < 16 ? d - i : 16;
      store_f16_n(to + i, load_n(v + i, count), count);
    }
    return;
  }
  const int groups = kv_groups(d);
  uint16_t* scales = reinterpret_cast<uint16_t*>(base) + position * groups;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(base) + groups * kBlockPositions * 2;
  const auto put_scale = [&](int group, uint16_t scale) { scales[group] = scale; };
  if (cache.type == KvType::q8_0) {
    bytes += position * d;
    quantise_head(cache.type, d, v, put_scale,
                  [&](int i, int32_t q) { bytes[i] = static_cast<uint8_t>(q); });
  } else {
    bytes += position * (d / 2);
    quantise_head(cache.type, d, v, put_scale, [&](int i, int32_t q) {
      const bool high = i >= d / 2;
      put_nibble(bytes + (high ? i - d / 2 : i), high, q);
    });
  }
}

// --- reading ----------------------------------------------------------------------------------

// One head's keys as floats [d][16]: the cache's own memory for f32, else converted into `scratch`.
// Lanes of positions that were never written hold garbage.
inline const float* read_k(const KvCacheView& cache, int64_t block, int head, float* scratch) {
  const std::byte* base = kv_head(cache, block, head);
  if (cache.type == KvType::f32) return reinterpret_cast<const float*>(base);
  const uint16_t* halves = reinterpret_cast<const uint16_t*>(base);
  const int d = cache.head_dim;
  if (cache.type == KvType::f16) {
    for (int i = 0; i < d; ++i) store(scratch + i * 16, load_f16(halves + i * 16));
    return scratch;
  }
  const int groups = kv_groups(d);
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(base) + groups * kBlockPositions * 2;
  for (int group = 0; group < groups; ++group) {
    const F32x16 scale = load_f16(halves + group * 16);
    const int end = kv_group_begin(d, group + 1);
    for (int i = kv_group_begin(d, group); i < end; ++i) {
      I32x16 q;
      if (cache.type == KvType::q8_0) {
        q = load_i8(reinterpret_cast<const int8_t*>(bytes + i * 16));
      } else {
        const I32x16 both = load_u8(bytes + i / 2 * 16);
        const I32x16 nibble = i % 2 != 0 ? shift_right<4>(both) : both;
        q = add(bit_and(nibble, broadcast_i32(15)), broadcast_i32(-8));
      }
      store(scratch + i * 16, mul(to_f32(q), scale));
    }
  }
  return scratch;
}

// The quantised value of dimension i of one position's values.
inline int32_t v_quant(KvType type, const uint8_t* row, int d, int i) {
  if (type == KvType::q8_0) return static_cast<int8_t>(row[i]);
  const int half = d / 2;
  return i < half ? (row[i] & 15) - 8 : (row[i - half] >> 4) - 8;
}

// 16 of them from dimension i on. Requires: all lie in one half of the row.
inline I32x16 v_quants(KvType type, const uint8_t* row, int d, int i) {
  if (type == KvType::q8_0) return load_i8(reinterpret_cast<const int8_t*>(row + i));
  const int half = d / 2;
  const I32x16 nibbles = i < half ? load_u8(row + i) : shift_right<4>(load_u8(row + i - half));
  return add(bit_and(nibbles, broadcast_i32(15)), broadcast_i32(-8));
}

// One head's values of positions [begin, end) of the block as floats [16][d]; as read_k. Rows
// outside the range are not read.
inline const float* read_v(const KvCacheView& cache, int64_t block, int head, int begin, int end,
                           float* scratch) {
  const std::byte* base = kv_head(cache, block, head);
  if (cache.type == KvType::f32) return reinterpret_cast<const float*>(base);
  const int d = cache.head_dim;
  if (cache.type == KvType::f16) {
    const uint16_t* halves = reinterpret_cast<const uint16_t*>(base);
    for (int i = begin * d; i < end * d; i += 16) {
      const int count = end * d - i < 16 ? end * d - i : 16;
      store_n(scratch + i, load_f16_n(halves + i, count), count);
    }
    return scratch;
  }
  const int groups = kv_groups(d);
  const size_t row_bytes = static_cast<size_t>(cache.type == KvType::q8_0 ? d : d / 2);
  const uint8_t* bytes = reinterpret_cast<const uint8_t*>(base) + groups * kBlockPositions * 2;
  // Whole vectors stay within a group and within a half of the row.
  const bool by_vectors = d % groups == 0 && d / groups % 16 == 0 && d % 32 == 0;
  for (int position = begin; position < end; ++position) {
    const uint8_t* row = bytes + static_cast<size_t>(position) * row_bytes;
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(base) + position * groups;
    float* out = scratch + position * d;
    for (int group = 0; group < groups; ++group) {
      const float scale = f16_to_f32(scales[group]);
      const int last = kv_group_begin(d, group + 1);
      int i = kv_group_begin(d, group);
      for (; by_vectors && i < last; i += 16) {
        store(out + i, mul(to_f32(v_quants(cache.type, row, d, i)), broadcast(scale)));
      }
      for (; i < last; ++i) {
        out[i] = static_cast<float>(v_quant(cache.type, row, d, i)) * scale;
      }
    }
  }
  return scratch;
}

}  // namespace strata::cpu::STRATA_CPU_ISA
