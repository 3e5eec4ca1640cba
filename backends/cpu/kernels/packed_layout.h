// Where things are in packed weights: the numbers shared by repack.cpp and the kernels.
//
// A matrix {k, rows} is a list of groups of 16 rows; a group holds all of K. The last group is
// padded with rows of zero bytes.
//
// F32, F16, BF16: k lines, line i = element i of each of the 16 rows.
//
// Block types: chunks along K. A chunk is a header and `blocks` blocks of 32 weights (fewer in the
// last chunk if K ends inside it):
//
//   header  d of 16 rows (half), and then by type: d of the chunk's second block; m of 16 rows; or
//           dmin of 16 rows, and for each block 16 x sc, 16 x m (bytes); Q6_K: 32 bytes of d, then
//           for each block 16 scales of its first half, 16 of its second
//   block   [high bits] lines of 64 bytes, 16 rows x 4 bytes
//
// Nibble lines: byte c of a row in line j holds weight 4j + c (low nibble) and 16 + 4j + c (high):
// four lines. Call those two runs of four "quads" j and 4 + j. A line of fifth bits (Q5) has bit i
// of byte c = the fifth bit of weight 4i + c, so quad i is one shift and one mask away. Two lines
// of top bits (Q6_K): the first for quads 0..3, the second for 4..7, bits 2(i % 4).. of byte c.
// Q8_0: eight lines, quad j in line j, stored with 128 added so that bytes are unsigned.
//
// All lines lie at multiples of 64 from the group's start.
#pragma once

#include <cstdint>

namespace strata::cpu {

template <int kHeader, int kBlocks, int kHighLines, int kLowLines>
struct PackedLayout {
  static constexpr int header_bytes = kHeader;
  static constexpr int blocks = kBlocks;              // per chunk
  static constexpr int high_bytes = 64 * kHighLines;  // come first in a block
  static constexpr int block_bytes = 64 * (kHighLines + kLowLines);
};

using LayoutQ4_0 = PackedLayout<64, 2, 0, 4>;
using LayoutQ4_1 = PackedLayout<64, 1, 0, 4>;
using LayoutQ5_0 = PackedLayout<64, 2, 1, 4>;
using LayoutQ5_1 = PackedLayout<64, 1, 1, 4>;
using LayoutQ8_0 = PackedLayout<64, 2, 0, 8>;
using LayoutQ4_K = PackedLayout<320, 8, 0, 4>;
using LayoutQ5_K = PackedLayout<320, 8, 1, 4>;
using LayoutQ6_K = PackedLayout<320, 8, 2, 4>;

// Byte offsets in the headers.
struct PackedHeader {
  static constexpr int second_d = 32;     // Q4_0, Q5_0, Q8_0: d of the chunk's second block
  static constexpr int minimum = 32;      // Q4_1, Q5_1: m; Q4_K, Q5_K: dmin
  static constexpr int k_scales = 64;     // Q4_K, Q5_K: 32 bytes a block, sc then m
  static constexpr int q6_k_scales = 64;  // Q6_K: 32 bytes a block
};

}  // namespace strata::cpu
