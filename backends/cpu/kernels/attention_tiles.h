// The inner loops of attention: scores and weighted values of a few rows and a tile of positions,
// in registers. What they compute is said in attention.h; which rows and blocks share a call is
// free.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

inline constexpr int kTileBlocks = kAttentionTile / kBlockPositions;
static_assert(kTileBlocks == 4);

// Asks for the line of dimension i of the keys that the next tile reads. The processor's own
// prefetchers don't help: a head's part of a block is a KiB or two, and the next one lies
// elsewhere.
template <typename Keys>
inline void fetch_key_line(const Keys& keys, int i) {
  if constexpr (Keys::kPerLine > 0) {
    if (i % Keys::kPerLine == 0) {
      __builtin_prefetch(reinterpret_cast<const char*>(keys.data) + i / Keys::kPerLine * 64);
    }
  }
}

// scores[r][16 b + lane] = chain over i of q[r][i] * k[b][i][lane]; of scaled keys a chain for each
// group, times its scale, added to the groups before. `ahead`: what to fetch.
template <typename Keys, int kRows, int kBlocks>
inline void score_tile(const float* const* q, const Keys* k, const Keys* ahead, int d,
                       float* const* scores) {
  const int groups = Keys::kScaled ? kv_groups(d) : 1;
  for (int group = 0; group < groups; ++group) {
    F32x16 sums[kRows][kBlocks];
    for (int r = 0; r < kRows; ++r) {
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = zero_f32();
    }
    const int end = Keys::kScaled ? kv_group_begin(d, group + 1) : d;
    for (int i = Keys::kScaled ? kv_group_begin(d, group) : 0; i < end; ++i) {
      F32x16 keys[kBlocks];
      for (int b = 0; b < kBlocks; ++b) {
        fetch_key_line(ahead[b], i);
        keys[b] = k[b].get(i);
      }
      for (int r = 0; r < kRows; ++r) {
        const F32x16 query = broadcast(q[r][i]);
        for (int b = 0; b < kBlocks; ++b) sums[r][b] = fma(query, keys[b], sums[r][b]);
      }
    }
    for (int b = 0; b < kBlocks; ++b) {
      F32x16 scale;
      if constexpr (Keys::kScaled) scale = k[b].scale(group);
      for (int r = 0; r < kRows; ++r) {
        float* to = scores[r] + b * kBlockPositions;
        if constexpr (Keys::kScaled) {
          sums[r][b] = fma(sums[r][b], scale, group == 0 ? zero_f32() : load(to));
        }
        store(to, sums[r][b]);
      }
    }
  }
}

// How many of `n` run at a time, of sizes `most`, most / 2, ... 1: few shapes to compile.
inline int halving_step(int n, int most) {
  while (most > n) most /= 2;
  return most;
}

// The same for any number of rows up to the template's, and its blocks or a half of a half of them.
template <typename Keys, int kRows, int kBlocks>
inline void score_tile_of(int rows, int blocks, const float* const* q, const Keys* k,
                          const Keys* ahead, int d, float* const* scores) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return score_tile_of<Keys, kRows - 1, kBlocks>(rows, blocks, q, k, ahead, d, scores);
    }
  }
  if constexpr (kBlocks > 1) {
    if (blocks < kBlocks) {
      return score_tile_of<Keys, kRows, kBlocks / 2>(rows, blocks, q, k, ahead, d, scores);
    }
  }
  score_tile<Keys, kRows, kBlocks>(q, k, ahead, d, scores);
}

// A tile's values: block b holds positions [16 b, 16 b + 16).
template <typename Values>
struct ValueTile {
  Values blocks[kTileBlocks];
  Values ahead[kTileBlocks];  // what the next tile reads in their places
  int d;
  int begin;  // positions of the tile that take part
  int end;
};

// Asks for the lines that hold, for `position` of a block that the next tile reads, kVectors runs
// of 16 dimensions from `dim` on.
template <int kVectors, typename Values>
inline void fetch_values(const Values& values, int position, int d, int dim) {
  if constexpr (Values::kFetchBits > 0) {
    const char* from = reinterpret_cast<const char*>(values.data) +
                       static_cast<size_t>(position * d + dim) * Values::kFetchBits / 8;
    for (int byte = 0; byte < kVectors * 16 * Values::kFetchBits / 8; byte += 64) {
      __builtin_prefetch(from + byte);
    }
  }
}

// sums[r][i] = sums[r][i] * rescale[r] + chain over positions p of weights[r][p] * v[p][i], for
// kVectors runs of 16 dimensions from `dim` on; the last has `tail` of them if kTail. Scaled values
// have weights of their own for each group, 64 floats apart.
template <typename Values, int kRows, int kVectors, bool kTail>
inline void value_tile(const ValueTile<Values>& v, int dim, int tail, const float* const* weights,
                       const float* rescale, float* const* sums) {
  F32x16 acc[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kVectors; ++n) {
      acc[r][n] = mul(load(sums[r] + dim + n * 16), broadcast(rescale[r]));
    }
  }
  for (int block = v.begin / kBlockPositions; block * kBlockPositions < v.end; ++block) {
    const int first = block * kBlockPositions;
    const int to = v.end < first + kBlockPositions ? v.end : first + kBlockPositions;
    const Values source = v.blocks[block];
    const Values ahead = v.ahead[block];
    for (int p = v.begin > first ? v.begin : first; p < to; ++p) {
      fetch_values<kVectors>(ahead, p - first, v.d, dim);
      F32x16 values[kVectors];
      for (int n = 0; n < kVectors; ++n) {
        if constexpr (kTail) {
          if (n == kVectors - 1) {
            values[n] = source.get_n(p - first, v.d, dim + n * 16, tail);
            continue;
          }
        }
        values[n] = source.get(p - first, v.d, dim + n * 16);
      }
      for (int r = 0; r < kRows; ++r) {
        for (int n = 0; n < kVectors; ++n) {
          const int group = Values::kScaled ? n / 2 : 0;
          const F32x16 weight = broadcast(weights[r][group * kAttentionTile + p]);
          acc[r][n] = fma(weight, values[n], acc[r][n]);
        }
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int n = 0; n < kVectors; ++n) store(sums[r] + dim + n * 16, acc[r][n]);
  }
}

template <typename Values, int kRows, int kVectors, bool kTail>
inline void value_tile_of(int rows, int vectors, const ValueTile<Values>& v, int dim, int tail,
                          const float* const* weights, const float* rescale, float* const* sums) {
  if constexpr (kRows > 1) {
    if (rows < kRows) {
      return value_tile_of<Values, kRows - 1, kVectors, kTail>(rows, vectors, v, dim, tail, weights,
                                                               rescale, sums);
    }
  }
  if constexpr (kVectors > 1) {
    if (vectors < kVectors) {
      return value_tile_of<Values, kRows, kVectors / 2, kTail>(rows, vectors, v, dim, tail, weights,
                                                               rescale, sums);
    }
  }
  value_tile<Values, kRows, kVectors, kTail>(v, dim, tail, weights, rescale, sums);
}

inline constexpr int kTileGroups = kTileVectors > 2 ? kTileVectors / 2 : 1;

// The weights times the scales of `groups` groups from that of dimension `dim` on:
// scaled[r][g][p] = weights[r][p] * scale[p][g].
template <typename Values, int kRows>
inline void scale_weights(int rows, const ValueTile<Values>& v, int dim, int groups,
                          const float* const* weights,
                          float (&scaled)[kRows][kTileGroups][kAttentionTile]) {
  for (int block = v.begin / kBlockPositions; block * kBlockPositions < v.end; ++block) {
    const int at = block * kBlockPositions;
    for (int g = 0; g < groups; ++g) {
      const F32x16 scale = load_f16(v.blocks[block].scales + (dim / 32 + g) * kBlockPositions);
      for (int r = 0; r < rows; ++r) {
        store(scaled[r][g] + at, mul(load(weights[r] + at), scale));
      }
    }
  }
}

// Up to kRows rows over all dimensions.
template <typename Values, int kRows>
inline void add_values(int rows, const ValueTile<Values>& v, const float* const* weights,
                       const float* rescale, float* const* sums) {
  alignas(64) float scaled[kRows][kTileGroups][kAttentionTile];  // of scaled values
  const float* scaled_rows[kRows] = {};
  for (int r = 0; r < rows; ++r) scaled_rows[r] = scaled[r][0];
  const int whole = v.d / 16;
  for (int n = 0, vectors = 0; n < whole; n += vectors) {
    vectors = halving_step(whole - n, kTileVectors);
    if constexpr (Values::kScaled) {
      scale_weights<Values, kRows>(rows, v, n * 16, (vectors + 1) / 2, weights, scaled);
    }
    value_tile_of<Values, kRows, kTileVectors, false>(
        rows, vectors, v, n * 16, 16, Values::kScaled ? scaled_rows : weights, rescale, sums);
  }
  if constexpr (!Values::kScaled) {
    if (v.d % 16 != 0) {
      value_tile_of<Values, kRows, 1, true>(rows, 1, v, whole * 16, v.d % 16, weights, rescale,
                                            sums);
    }
  }
}

}  // namespace strata::cpu::STRATA_CPU_ISA
