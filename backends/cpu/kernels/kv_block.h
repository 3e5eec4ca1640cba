// The layout of keys and values inside a block of 16 positions, and how they are written and read.
//
// A block holds its heads one after the other. Within a head of dimension d:
//   K f32, f16   [d][16 positions]: lanes are positions
//   V f32, f16   [16 positions][d]: lanes are dimensions
//   K q8_0       f16 scales [groups][16], then int8 [d][16]
//   V q8_0       f16 scales [groups][16], then int8 [16][d]
//   K q4_0       f16 scales [groups][16], then bytes [d / 2][16]: of a byte, the low half is
//                dimension 2 i, the high one 2 i + 1
//   V q4_0       f16 scales [groups][16], then bytes [16][d / 2]: the low half is dimension i, the
//                high one i + d / 2
// A position's d dimensions are quantised in d / 32 groups, as equal as can be, so that the bytes
// never exceed those of the GGUF type. Numbers are q * scale, for q4_0 (q - 8) * scale; attention
// multiplies the scale into what it multiplies with q (attention.h).
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
  uint16_t* scales = reinterpret_cast<uint16_t*>(base) + position;
  uint8_t* bytes = reinterpret_cast<uint8_t*>(base) + kv_groups(d) * kBlockPositions * 2;
  const auto put_scale = [&](int group, uint16_t scale) {
    scales[group * kBlockPositions] = scale;
  };
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

// One head's keys in a block, a vector of 16 positions for each dimension. Positions that were
// never written hold garbage. kScaled: get() is to be multiplied by scale() of the dimension's
// group. kPerLine: dimensions in a cache line, for those that are read ahead; 0: never.
struct KeysF32 {
  static constexpr bool kScaled = false;
  static constexpr int kPerLine = 0;
  const float* data;
  F32x16 get(int i) const { return load(data + i * kBlockPositions); }
};
struct KeysF16 {
  static constexpr bool kScaled = false;
  static constexpr int kPerLine = 2;
  const uint16_t* data;
  F32x16 get(int i) const { return load_f16(data + i * kBlockPositions); }
};
struct KeysQ8 {
  static constexpr bool kScaled = true;
  static constexpr int kPerLine = 4;
  const uint16_t* scales;
  const uint8_t* data;
  F32x16 scale(int group) const { return load_f16(scales + group * kBlockPositions); }
  F32x16 get(int i) const {
    return to_f32(load_i8(reinterpret_cast<const int8_t*>(data + i * kBlockPositions)));
  }
};
struct KeysQ4 {
  static constexpr bool kScaled = true;
  static constexpr int kPerLine = 8;
  const uint16_t* scales;
  const uint8_t* data;
  F32x16 scale(int group) const { return load_f16(scales + group * kBlockPositions); }
  F32x16 get(int i) const {
    const I32x16 both = load_u8(data + i / 2 * kBlockPositions);
    return nibble_to_f32(i % 2 != 0 ? shift_right<4>(both) : both);
  }
};
// Quantised keys of which each q was made a float in memory.
struct KeysWide {
  static constexpr bool kScaled = true;
  static constexpr int kPerLine = 0;
  const uint16_t* scales;
  const float* data;
  F32x16 scale(int group) const { return load_f16(scales + group * kBlockPositions); }
  F32x16 get(int i) const { return load(data + i * kBlockPositions); }
};

// What lies behind the scales of a quantised head.
inline const uint8_t* after_scales(const std::byte* head, int head_dim) {
  return reinterpret_cast<const uint8_t*>(head) + kv_groups(head_dim) * kBlockPositions * 2;
}

template <typename Keys>
inline Keys keys_of(const KvCacheView& cache, int64_t block, int head) {
  const std::byte* base = kv_head(cache, block, head);
  if constexpr (Keys::kScaled) {
    return {reinterpret_cast<const uint16_t*>(base), after_scales(base, cache.head_dim)};
  } else {
    return {reinterpret_cast<decltype(Keys::data)>(base)};
  }
}

// The keys as floats without their scales, {16, d} in `out`.
template <typename Keys>
inline const float* expand_keys(const Keys& keys, int d, float* out) {
  for (int i = 0; i < d; ++i) store(out + i * kBlockPositions, keys.get(i));
  return out;
}

inline KeysF32 read_keys(const KvCacheView& cache, int64_t block, int head, float* scratch) {
  if (cache.type == KvType::f32) return keys_of<KeysF32>(cache, block, head);
  return {expand_keys(keys_of<KeysF16>(cache, block, head), cache.head_dim, scratch)};
}

inline KeysWide read_scaled_keys(const KvCacheView& cache, int64_t block, int head,
                                 float* scratch) {
  if (cache.type == KvType::q8_0) {
    const KeysQ8 keys = keys_of<KeysQ8>(cache, block, head);
    return {keys.scales, expand_keys(keys, cache.head_dim, scratch)};
  }
  const KeysQ4 keys = keys_of<KeysQ4>(cache, block, head);
  return {keys.scales, expand_keys(keys, cache.head_dim, scratch)};
}

// One head's values in a block, for positions and runs of 16 dimensions. get_n() reads the first n.
// kScaled: get() is to be multiplied by the scale of its position and group; only where d is a
// multiple of 32, so that groups are 32 wide and 16 dimensions lie in one half of a row.
// kFetchBits: bits of a dimension, for those that are read ahead; 0: never.
struct ValuesF32 {
  static constexpr bool kScaled = false;
  static constexpr int kFetchBits = 0;
  const float* data;
  F32x16 get(int position, int d, int i) const { return load(data + position * d + i); }
  F32x16 get_n(int position, int d, int i, int n) const {
    return load_n(data + position * d + i, n);
  }
};
struct ValuesF16 {
  static constexpr bool kScaled = false;
  static constexpr int kFetchBits = 16;
  const uint16_t* data;
  F32x16 get(int position, int d, int i) const { return load_f16(data + position * d + i); }
  F32x16 get_n(int position, int d, int i, int n) const {
    return load_f16_n(data + position * d + i, n);
  }
};
struct ValuesQ8 {
  static constexpr bool kScaled = true;
  static constexpr int kFetchBits = 8;
  const uint16_t* scales;
  const uint8_t* data;
  F32x16 get(int position, int d, int i) const {
    return to_f32(load_i8(reinterpret_cast<const int8_t*>(data + position * d + i)));
  }
};
struct ValuesQ4 {
  static constexpr bool kScaled = true;
  static constexpr int kFetchBits = 4;
  const uint16_t* scales;
  const uint8_t* data;
  F32x16 get(int position, int d, int i) const {
    const uint8_t* row = data + position * (d / 2);
    return nibble_to_f32(i < d / 2 ? load_u8(row + i) : shift_right<4>(load_u8(row + i - d / 2)));
  }
};
// Quantised values of which each q was made a float in memory.
struct ValuesWide {
  static constexpr bool kScaled = true;
  static constexpr int kFetchBits = 0;
  const uint16_t* scales;
  const float* data;
  F32x16 get(int position, int d, int i) const { return load(data + position * d + i); }
};

inline bool is_quantised(const KvCacheView& cache) {
  return cache.type == KvType::q8_0 || cache.type == KvType::q4_0;
}
inline bool has_even_groups(const KvCacheView& cache) { return cache.head_dim % 32 == 0; }

template <typename Values>
inline Values values_of(const KvCacheView& cache, int64_t block, int head) {
  const std::byte* base = kv_head(cache, block, head);
  if constexpr (Values::kScaled) {
    return {reinterpret_cast<const uint16_t*>(base), after_scales(base, cache.head_dim)};
  } else {
    return {reinterpret_cast<decltype(Values::data)>(base)};
  }
}

// Values of positions [begin, end) as floats without their scales, {d, 16} in `out`.
template <typename Values>
inline const float* expand_values(const Values& values, int d, int begin, int end, float* out) {
  for (int position = begin; position < end; ++position) {
    int i = 0;
    for (; i + 16 <= d; i += 16) store(out + position * d + i, values.get(position, d, i));
    if constexpr (!Values::kScaled) {
      if (i < d) store_n(out + position * d + i, values.get_n(position, d, i, d - i), d - i);
    }
  }
  return out;
}

// Quantised values with groups of any width, one by one, multiplied by their scales.
inline const float* expand_uneven_values(const KvCacheView& cache, const ValuesQ8& values,
                                         int begin, int end, float* out) {
  const int d = cache.head_dim;
  for (int position = begin; position < end; ++position) {
    for (int group = 0; group < kv_groups(d); ++group) {
      const float scale = f16_to_f32(values.scales[group * kBlockPositions + position]);
      for (int i = kv_group_begin(d, group); i < kv_group_begin(d, group + 1); ++i) {
        int32_t q = 0;
        if (cache.type == KvType::q8_0) {
          q = static_cast<int8_t>(values.data[position * d + i]);
        } else {
          const uint8_t* row = values.data + position * (d / 2);
          q = i < d / 2 ? (row[i] & 15) - 8 : (row[i - d / 2] >> 4) - 8;
        }
        out[position * d + i] = static_cast<float>(q) * scale;
      }
    }
  }
  return out;
}

// Requires: values that are not quantised, or in uneven groups.
inline ValuesF32 read_values(const KvCacheView& cache, int64_t block, int head, int begin, int end,
                             float* scratch) {
  if (cache.type == KvType::f32) return values_of<ValuesF32>(cache, block, head);
  if (cache.type == KvType::f16) {
    return {expand_values(values_of<ValuesF16>(cache, block, head), cache.head_dim, begin, end,
                          scratch)};
  }
  return {
      expand_uneven_values(cache, values_of<ValuesQ8>(cache, block, head), begin, end, scratch)};
}

// Requires: quantised values in even groups.
inline ValuesWide read_scaled_values(const KvCacheView& cache, int64_t block, int head, int begin,
                                     int end, float* scratch) {
  const int d = cache.head_dim;
  if (cache.type == KvType::q8_0) {
    const ValuesQ8 values = values_of<ValuesQ8>(cache, block, head);
    return {values.scales, expand_values(values, d, begin, end, scratch)};
  }
  const ValuesQ4 values = values_of<ValuesQ4>(cache, block, head);
  return {values.scales, expand_values(values, d, begin, end, scratch)};
}

}  // namespace strata::cpu::STRATA_CPU_ISA
