// The matrix kernels, written once over the lanes of matmul_lanes_*.h.
//
// One inner loop handles kSlices x kColumns: slices of kWidth output rows, each held in one
// register for each column, while K runs from block to block. For a block, a slice's 32 weights of
// each row are unpacked once into eight quads (registers of kWidth rows x 4 weights) and meet the
// activations of all columns:
//
//   dot_c = exact integer sum of quads x q_c          (8 dot instructions with VNNI)
//   acc_c = fma(d_w * d_c, float(dot_c), acc_c)
//   acc_c = fma(m_w, s_c, acc_c)                      (types with a minimum)
//
// so an element's chain never depends on the tile. See docs/kernels.md and packed_layout.h.
#pragma once

#include <cstdint>

#include "backends/cpu/kernels/matmul_kernels.h"
#include "backends/cpu/kernels/packed_layout.h"

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

constexpr int kSlicesPerGroup = kGroupRows / kWidth;

// --- block types: scales and quads of a slice ---------------------------------------------------

// `lane` is the slice's first row in its group, 0 or 8.

inline void unpack_nibbles(const uint8_t* lines, int lane, I* quads) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const I line = load_line(lines + 64 * j + 4 * lane);
    quads[j] = bit_and(line, 0x0f0f0f0f);
    quads[4 + j] = bit_and(shift<4>(line), 0x0f0f0f0f);
  }
}

// Quad kQuad's fifth bits come to bit 4 of each byte.
template <int kQuad>
inline I with_fifth_bit(I nibbles, I high) {
  return bit_and(blend_bits(0x0f0f0f0f, nibbles, shift<kQuad - 4>(high)), 0x1f1f1f1f);
}

inline void unpack_5_bits(const uint8_t* block, int lane, I* quads) {
  const I high = load_line(block + 4 * lane);
  I lines[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) lines[j] = load_line(block + 64 + 64 * j + 4 * lane);
  quads[0] = with_fifth_bit<0>(lines[0], high);
  quads[1] = with_fifth_bit<1>(lines[1], high);
  quads[2] = with_fifth_bit<2>(lines[2], high);
  quads[3] = with_fifth_bit<3>(lines[3], high);
  quads[4] = with_fifth_bit<4>(shift<4>(lines[0]), high);
  quads[5] = with_fifth_bit<5>(shift<4>(lines[1]), high);
  quads[6] = with_fifth_bit<6>(shift<4>(lines[2]), high);
  quads[7] = with_fifth_bit<7>(shift<4>(lines[3]), high);
}

// Bits 2i.. of `high` come to bits 4 and 5.
template <int kIndex>
inline I with_top_bits(I nibbles, I high) {
  return bit_and(blend_bits(0x0f0f0f0f, nibbles, shift<2 * kIndex - 4>(high)), 0x3f3f3f3f);
}

inline void unpack_6_bits(const uint8_t* block, int lane, I* quads) {
  const I high_0 = load_line(block + 4 * lane);
  const I high_1 = load_line(block + 64 + 4 * lane);
  I lines[4];
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) lines[j] = load_line(block + 128 + 64 * j + 4 * lane);
  quads[0] = with_top_bits<0>(lines[0], high_0);
  quads[1] = with_top_bits<1>(lines[1], high_0);
  quads[2] = with_top_bits<2>(lines[2], high_0);
  quads[3] = with_top_bits<3>(lines[3], high_0);
  quads[4] = with_top_bits<0>(shift<4>(lines[0]), high_1);
  quads[5] = with_top_bits<1>(shift<4>(lines[1]), high_1);
  quads[6] = with_top_bits<2>(shift<4>(lines[2]), high_1);
  quads[7] = with_top_bits<3>(shift<4>(lines[3]), high_1);
}

inline void load_bytes(const uint8_t* block, int lane, I* quads) {
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) quads[j] = load_line(block + 64 * j + 4 * lane);
}

// What a chunk's header says once for all its blocks.
struct NoChunk {};
struct KChunk {
  F d;
  F minus_dmin;
};

// Types of one half d per block, without a minimum; kOffsetBits: log2 of what is taken from the
// unsigned weights.
template <typename LayoutType, int kBits, int kOffset, void (*kUnpack)(const uint8_t*, int, I*)>
struct ScaledType {
  using Layout = LayoutType;
  using Chunk = NoChunk;
  static constexpr int bits = kBits;
  static constexpr int offset_bits = kOffset;  // -1: none
  static constexpr bool has_minimum = false;
  static Chunk chunk(const uint8_t*, int) { return {}; }
  static F scale(const Chunk&, const uint8_t* header, int j, int lane) {
    return load_f16(header + PackedHeader::second_d * j + 2 * lane);
  }
  static F minimum(const Chunk&, const uint8_t*, int, int) { return zero(); }
  static void unpack(const uint8_t* block, int lane, I* quads) { kUnpack(block, lane, quads); }
};

// Types of one d and one m per block.
template <typename LayoutType, int kBits, void (*kUnpack)(const uint8_t*, int, I*)>
struct AffineType {
  using Layout = LayoutType;
  using Chunk = NoChunk;
  static constexpr int bits = kBits;
  static constexpr int offset_bits = -1;
  static constexpr bool has_minimum = true;
  static Chunk chunk(const uint8_t*, int) { return {}; }
  static F scale(const Chunk&, const uint8_t* header, int, int lane) {
    return load_f16(header + 2 * lane);
  }
  static F minimum(const Chunk&, const uint8_t* header, int, int lane) {
    return load_f16(header + PackedHeader::minimum + 2 * lane);
  }
  static void unpack(const uint8_t* block, int lane, I* quads) { kUnpack(block, lane, quads); }
};

// Q4_K and Q5_K: d * sc and dmin * m are exact, 11 bits times 6.
template <typename LayoutType, int kBits, void (*kUnpack)(const uint8_t*, int, I*)>
struct KType {
  using Layout = LayoutType;
  using Chunk = KChunk;
  static constexpr int bits = kBits;
  static constexpr int offset_bits = -1;
  static constexpr bool has_minimum = true;
  static Chunk chunk(const uint8_t* header, int lane) {
    return {load_f16(header + 2 * lane),
            negate(load_f16(header + PackedHeader::minimum + 2 * lane))};
  }
  static F scale(const Chunk& chunk, const uint8_t* header, int j, int lane) {
    return mul(chunk.d, load_u8(header + PackedHeader::k_scales + 32 * j + lane));
  }
  static F minimum(const Chunk& chunk, const uint8_t* header, int j, int lane) {
    return mul(chunk.minus_dmin, load_u8(header + PackedHeader::k_scales + 32 * j + 16 + lane));
  }
  static void unpack(const uint8_t* block, int lane, I* quads) { kUnpack(block, lane, quads); }
};

constexpr int kSignedOffset = kDotOfOffsetBytes ? 7 : -1;

using TypeQ4_0 = ScaledType<LayoutQ4_0, 4, 3, unpack_nibbles>;
using TypeQ4_1 = AffineType<LayoutQ4_1, 4, unpack_nibbles>;
using TypeQ5_0 = ScaledType<LayoutQ5_0, 5, 4, unpack_5_bits>;
using TypeQ5_1 = AffineType<LayoutQ5_1, 5, unpack_5_bits>;
using TypeQ8_0 = ScaledType<LayoutQ8_0, 8, kSignedOffset, load_bytes>;
using TypeQ4_K = KType<LayoutQ4_K, 4, unpack_nibbles>;
using TypeQ5_K = KType<LayoutQ5_K, 5, unpack_5_bits>;

// --- one block of a few slices, all columns -----------------------------------------------------

// Block `j` of a chunk, as a slice finds it.
template <typename Chunk>
struct BlockAt {
  Chunk chunk;
  const uint8_t* header;
  const uint8_t* block;
  int lane;
};

template <typename Type, int kSlices, int kColumns>
struct BlockStep {
  using At = BlockAt<typename Type::Chunk>;

  static inline void run(const At* at, int j, const ActivationBlock* const* x, F (*acc)[kColumns]) {
    constexpr int kSide = kColumns < kDotColumns ? kColumns : kDotColumns;
    I quads[kSlices][8];
    F d[kSlices];
    F m[kSlices];
#pragma GCC unroll 2
    for (int s = 0; s < kSlices; ++s) {
      Type::unpack(at[s].block, at[s].lane, quads[s]);
      d[s] = Type::scale(at[s].chunk, at[s].header, j, at[s].lane);
      m[s] = Type::minimum(at[s].chunk, at[s].header, j, at[s].lane);
    }
#pragma GCC unroll 8
    for (int first = 0; first < kColumns; first += kSide) {
      I sums[kSlices][kSide];
      const int8_t* q[kSide];
#pragma GCC unroll 8
      for (int c = 0; c < kSide; ++c) {
        q[c] = x[first + c]->q;
        I start = set_shifted<0>(0);
        if constexpr (Type::offset_bits >= 0) {
          constexpr int kOffset = Type::offset_bits >= 0 ? Type::offset_bits : 0;
          start = set_shifted<kOffset>(x[first + c]->negative_sum);
        }
#pragma GCC unroll 2
        for (int s = 0; s < kSlices; ++s) sums[s][c] = start;
      }
      dot<Type::bits, 8, kSlices, kSide>(quads, 0, q, sums);
#pragma GCC unroll 2
      for (int s = 0; s < kSlices; ++s) {
#pragma GCC unroll 8
        for (int c = 0; c < kSide; ++c) {
          const ActivationBlock& a = *x[first + c];
          F& sum = acc[s][first + c];
          sum = fma(mul(d[s], set(a.d)), to_float(sums[s][c]), sum);
          if constexpr (Type::has_minimum) sum = fma(m[s], set(a.s), sum);
        }
      }
    }
  }
};

// Two scales of 8 bits in a block: dot times scale is an integer below 2^23, and so is exact in
// F32, as is the sum of both halves.
struct TypeQ6_K {
  struct Chunk {
    F d;
  };
  using Layout = LayoutQ6_K;
  static Chunk chunk(const uint8_t* header, int lane) { return {load_f16(header + 2 * lane)}; }
};

template <int kSlices, int kColumns>
struct BlockStep<TypeQ6_K, kSlices, kColumns> {
  using At = BlockAt<TypeQ6_K::Chunk>;

  static inline void run(const At* at, int j, const ActivationBlock* const* x, F (*acc)[kColumns]) {
    I quads[kSlices][8];
    F scale_low[kSlices];
    F scale_high[kSlices];
#pragma GCC unroll 2
    for (int s = 0; s < kSlices; ++s) {
      unpack_6_bits(at[s].block, at[s].lane, quads[s]);
      const uint8_t* scales = at[s].header + PackedHeader::q6_k_scales + 32 * j + at[s].lane;
      scale_low[s] = load_i8(scales);
      scale_high[s] = load_i8(scales + 16);
    }
    constexpr int kSide = kColumns < kDotColumns ? kColumns : kDotColumns;
#pragma GCC unroll 8
    for (int first = 0; first < kColumns; first += kSide) {
      I low[kSlices][kSide];
      I high[kSlices][kSide];
      const int8_t* q[kSide];
      const int8_t* q_high[kSide];
#pragma GCC unroll 8
      for (int c = 0; c < kSide; ++c) {
        q[c] = x[first + c]->q;
        q_high[c] = x[first + c]->q + 16;
#pragma GCC unroll 2
        for (int s = 0; s < kSlices; ++s) {
          low[s][c] = set_shifted<5>(x[first + c]->negative_sum_low);
          high[s][c] = set_shifted<5>(x[first + c]->negative_sum_high);
        }
      }
      dot<6, 4, kSlices, kSide>(quads, 0, q, low);
      dot<6, 4, kSlices, kSide>(quads, 4, q_high, high);
#pragma GCC unroll 2
      for (int s = 0; s < kSlices; ++s) {
#pragma GCC unroll 8
        for (int c = 0; c < kSide; ++c) {
          const F sum =
              fma(scale_high[s], to_float(high[s][c]), mul(scale_low[s], to_float(low[s][c])));
          F& total = acc[s][first + c];
          total = fma(mul(at[s].chunk.d, set(x[first + c]->d)), sum, total);
        }
      }
    }
  }
};

// --- loops --------------------------------------------------------------------------------------

// Weights stream from memory once. The processor's own prefetchers stop at each 4 KiB page, hence
// this: of 0, 2 and 6 KiB ahead the last read fastest, as fast as a plain sum
// over the same bytes (Q4_1, Q6_K and Q8_0 on Emerald Rapids; a fifth to a third faster than none).
// Blocks go into the second-level cache, which has room for more lines on their way than the first:
// 5 to 10% more for one column than into the first, 3 to 13% for 2 to 8. Floats (which have no
// unpacking to hide the last step behind) go into the first.
constexpr int kPrefetchAhead = 6144;

template <int kBytes>
inline void prefetch(const uint8_t* p) {
#pragma GCC unroll 8
  for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(p + line, 0, 2);
}

// Where slice `index` of a call starts.
struct Slice {
  const uint8_t* weights;
  int lane;
  int64_t row;
};

inline Slice slice_at(const TileArgs& args, int64_t index) {
  const int64_t group = index / kSlicesPerGroup;
  const int lane = static_cast<int>(index % kSlicesPerGroup) * kWidth;
  return {args.weights + static_cast<uint64_t>(group) * args.group_bytes, lane,
          group * kGroupRows + lane};
}

inline void store_slice(const TileArgs& args, const Slice& slice, const F* acc, int columns) {
  const int64_t left = args.row_count - slice.row;
  const int n = left >= kWidth ? kWidth : left < 0 ? 0 : static_cast<int>(left);
  for (int c = 0; c < columns; ++c) store(args.y[c] + slice.row, acc[c], n);
}

template <typename Type, int kSlices, int kColumns>
struct BlockLoop {
  static inline void run(const TileArgs& args, int first_column, int64_t first_slice) {
    using Layout = typename Type::Layout;
    Slice slices[kSlices];
    F acc[kSlices][kColumns];
    const ActivationBlock* x[kColumns];
    for (int s = 0; s < kSlices; ++s) {
      slices[s] = slice_at(args, first_slice + s);
      for (int c = 0; c < kColumns; ++c) acc[s][c] = zero();
    }
    for (int c = 0; c < kColumns; ++c) {
      x[c] = static_cast<const ActivationBlock*>(args.x[first_column + c]);
    }
    // One column reads weights as fast as memory gives them: slices one by one.
    constexpr int kJoint = kColumns > 1 && kSlices % kJointSlices == 0 ? kJointSlices : 1;
    // What lies ahead of joint groups is read along with them, but for what lies ahead of the last.
    const uint64_t ahead = kPrefetchAhead + (kJoint - 1) * args.group_bytes;
    const uint8_t* chunks[kSlices];
    for (int s = 0; s < kSlices; ++s) chunks[s] = slices[s].weights;
    for (int64_t left = args.k / kBlockElements; left > 0; left -= Layout::blocks) {
      typename Type::Chunk chunk[kSlices];
      for (int s = 0; s < kSlices; ++s) {
        chunk[s] = Type::chunk(chunks[s], slices[s].lane);
        if (args.from_memory && slices[s].lane == 0) {
          prefetch<Layout::header_bytes>(chunks[s] + ahead);
        }
      }
      const int count = left < Layout::blocks ? static_cast<int>(left) : Layout::blocks;
      for (int j = 0; j < count; ++j) {
#pragma GCC unroll 4
        for (int first = 0; first < kSlices; first += kJoint) {
          BlockAt<typename Type::Chunk> at[kJoint];
          for (int i = 0; i < kJoint; ++i) {
            const int s = first + i;
            const uint8_t* block = chunks[s] + Layout::header_bytes + j * Layout::block_bytes;
            if (args.from_memory && slices[s].lane == 0) {
              prefetch<Layout::block_bytes>(block + ahead);
            }
            at[i] = {chunk[s], chunks[s], block, slices[s].lane};
          }
          BlockStep<Type, kJoint, kColumns>::run(at, j, x, acc + first);
        }
#pragma GCC unroll 8
        for (int c = 0; c < kColumns; ++c) ++x[c];
      }
      for (int s = 0; s < kSlices; ++s) {
        chunks[s] += Layout::header_bytes + Layout::blocks * Layout::block_bytes;
      }
    }
    TileArgs shifted = args;
    for (int c = 0; c < kColumns; ++c) shifted.y[c] = args.y[first_column + c];
    for (int s = 0; s < kSlices; ++s) store_slice(shifted, slices[s], acc[s], kColumns);
  }
};

struct PlainF32 {
  static constexpr int line_bytes = 64;
  static F load_row(const uint8_t* p, int lane) {
    return load(reinterpret_cast<const float*>(p) + lane);
  }
};
struct PlainF16 {
  static constexpr int line_bytes = 32;
  static F load_row(const uint8_t* p, int lane) { return load_f16(p + 2 * lane); }
};
struct PlainBF16 {
  static constexpr int line_bytes = 32;
  static F load_row(const uint8_t* p, int lane) { return load_bf16(p + 2 * lane); }
};

template <typename Type, int kSlices, int kColumns>
struct PlainLoop {
  static inline void run(const TileArgs& args, int first_column, int64_t first_slice) {
    Slice slices[kSlices];
    F acc[kSlices][kColumns];
    const float* x[kColumns];
    for (int s = 0; s < kSlices; ++s) {
      slices[s] = slice_at(args, first_slice + s);
      for (int c = 0; c < kColumns; ++c) acc[s][c] = zero();
    }
    for (int c = 0; c < kColumns; ++c) x[c] = static_cast<const float*>(args.x[first_column + c]);
    for (int64_t i = 0; i < args.k; ++i) {
      F w[kSlices];
#pragma GCC unroll 4
      for (int s = 0; s < kSlices; ++s) {
        if (args.from_memory && slices[s].lane == 0) {
          __builtin_prefetch(slices[s].weights + i * Type::line_bytes + kPrefetchAhead);
        }
        w[s] = Type::load_row(slices[s].weights + i * Type::line_bytes, slices[s].lane);
      }
#pragma GCC unroll 8
      for (int c = 0; c < kColumns; ++c) {
        const F value = set(x[c][i]);
#pragma GCC unroll 4
        for (int s = 0; s < kSlices; ++s) acc[s][c] = fma(w[s], value, acc[s][c]);
      }
    }
    TileArgs shifted = args;
    for (int c = 0; c < kColumns; ++c) shifted.y[c] = args.y[first_column + c];
    for (int s = 0; s < kSlices; ++s) store_slice(shifted, slices[s], acc[s], kColumns);
  }
};

// All slices of a call for kColumns of its columns, kSlices at a time.
template <template <typename, int, int> typename Loop, typename Type, int kSlices, int kColumns>
inline void run_slices(const TileArgs& args, int first_column) {
  const int64_t count = args.group_count * kSlicesPerGroup;
  int64_t s = 0;
  for (; s + kSlices <= count; s += kSlices) {
    Loop<Type, kSlices, kColumns>::run(args, first_column, s);
  }
  if constexpr (kSlices > 1) {
    for (; s < count; ++s) Loop<Type, 1, kColumns>::run(args, first_column, s);
  }
}

// Column counts in between run as the next larger one, with the last column several times over:
// the same values are stored again.
template <template <typename, int, int> typename Loop, typename Type, int kFew, int kMany>
inline void run_tile(const TileArgs& args) {
  TileArgs padded = args;
  for (int c = args.column_count; c < kTileColumns; ++c) {
    padded.x[c] = args.x[args.column_count - 1];
    padded.y[c] = args.y[args.column_count - 1];
  }
  if (args.column_count == 1) return run_slices<Loop, Type, kFew, 1>(padded, 0);
  if constexpr (kMaxColumns >= 4) {
    if (args.column_count == 2) return run_slices<Loop, Type, kMany, 2>(padded, 0);
    if (args.column_count <= 4) return run_slices<Loop, Type, kMany, 4>(padded, 0);
  }
  for (int c = 0; c < args.column_count; c += kMaxColumns) {
    run_slices<Loop, Type, kMany, kMaxColumns>(padded, c);
    padded.from_memory = false;
  }
}

template <typename Type>
inline void block_tile(const TileArgs& args) {
  run_tile<BlockLoop, Type, kVectorSlices, kJointSlices>(args);
}
template <typename Type>
inline void plain_tile(const TileArgs& args) {
  run_tile<PlainLoop, Type, 2 * kPlainSlices, kPlainSlices>(args);
}

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
