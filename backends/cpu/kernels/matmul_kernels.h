// The seam between the matrix-product driver and its kernels: plain structs and function pointers.
//
// One set of kernels per instruction set fills a MatmulKernels; all of them give the same bits
// (docs/kernels.md). This header is included by code compiled with -mavx512..., so it includes
// <cstdint> only and holds no inline function.
#pragma once

#include <cstdint>

namespace strata::cpu {

// Rows are interleaved by groups of this many; a lane is an output row.
inline constexpr int kGroupRows = 16;
// Weights that share a scale, and activations that share one: K order runs over these.
inline constexpr int kBlockElements = 32;
// The most columns that one call of a tile kernel takes.
inline constexpr int kTileColumns = 8;

// The weight types with kernels. The order is that of MatmulKernels::tile.
enum class PackedType : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };
inline constexpr int kPackedTypeCount = 11;

// 32 activations rounded to 8 bits: x[i] is about d * q[i]. One cache line, so that a 4-byte
// broadcast never crosses one.
struct alignas(64) ActivationBlock {
  int8_t q[kBlockElements];   // in [-127, 127]
  float d;                    // largest magnitude / 127; NaN if any of the 32 is not finite
  float s;                    // d * sum of q: meets the minimum of Q4_1, Q5_1, Q4_K, Q5_K
  int32_t negative_sum;       // -(sum of q): takes the offset of unsigned weights away
  int32_t negative_sum_low;   // the same of q[0..15] ...
  int32_t negative_sum_high;  // ... and of q[16..31]
  int32_t unused[3];
};

// One call of a tile kernel: a range of row groups times up to eight columns.
struct TileArgs {
  const uint8_t* weights;  // first group of the range, packed
  uint64_t group_bytes;    // from one group to the next
  int64_t group_count;
  int64_t k;          // elements of a row
  int64_t row_count;  // valid rows from the first group's first row on; others are not stored
  int column_count;   // 1..8
  // The weights are not in a cache near by: fetch them ahead.
  bool from_memory = false;
  // Column c: k F32 values, or k / 32 ActivationBlocks, as the weight type wants.
  const void* x[kTileColumns];
  float* y[kTileColumns];  // column c's output for the first group's first row; rows are dense
};

// Of rounding activations. Adding 1.5 * 2^23 drops a float's fraction. Losses, sums of squared
// errors over the square of the levels, count as equal within what their own rounding may be.
inline constexpr float kRounder = 12582912.0f;
inline constexpr float kEqualLoss = 0x1p-40f;

struct MatmulKernels {
  // Rounds `k` (a multiple of 32) values to k / 32 blocks.
  void (*quantise_row)(const float* x, int64_t k, ActivationBlock* blocks);
  void (*tile[kPackedTypeCount])(const TileArgs& args);
};

// The kernels of one instruction set. Requires: the processor has it (backends/cpu/isa.h).
const MatmulKernels& matmul_kernels_scalar();
const MatmulKernels& matmul_kernels_avx2();         // AVX2, FMA, F16C
const MatmulKernels& matmul_kernels_avx2_vnni();    // and AVX-VNNI
const MatmulKernels& matmul_kernels_avx512();       // AVX-512 F, BW, VL, DQ
const MatmulKernels& matmul_kernels_avx512_vnni();  // and AVX512-VNNI

}  // namespace strata::cpu
