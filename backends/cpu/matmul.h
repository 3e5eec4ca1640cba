// Matrix products of weights and activations, cut into pieces that threads can claim.
//
// How a node runs: weight_matrix() describes its weights; if uses_activation_blocks(), every row of
// x is rounded once by quantise_rows() (and the result is shared by all products that read that x);
// plan_pieces() cuts rows x columns; any thread runs any piece with run_matmul_piece() or
// run_matmul_id_piece(). Nothing here allocates, locks or knows about threads.
//
// Every output element is one chain in K order that does not depend on the piece, the column count,
// the thread or the kernels used: equal bits always (docs/kernels.md). Weights are read from packed
// memory (packed_buffer_type.h), or from plain GGUF rows in host memory: slower, the same bits.
//
// Threads: all functions from any thread; distinct pieces write distinct elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernels/matmul_kernels.h"
#include "runtime/tensor/tensor.h"

namespace strata::cpu {

// The kernels of a vector path. Requires: the processor has it (available_isas()).
const MatmulKernels& matmul_kernels(Isa isa);

// Weights {k, rows, matrices} as the kernels find them. A view: owns nothing.
struct WeightMatrix {
  DType dtype = DType::f32;
  int64_t k = 0;
  int64_t rows = 0;      // of one matrix
  int64_t matrices = 1;  // experts
  const std::byte* data = nullptr;
  bool packed = false;
  uint64_t row_bytes = 0;     // plain: from one row to the next
  uint64_t matrix_bytes = 0;  // from one matrix to the next
};

// True for the types and shapes that mul_mat, mul_mat_id and get_rows take as weights.
bool is_weight_type(DType dtype);
// Requires: is_weight_type(tensor.dtype); the tensor is in packed or in host memory, or is not
// placed yet and then will be in host memory; a view only in host memory, with dense rows. matmul
// rounds activations for block types: k % 32 == 0.
WeightMatrix weight_matrix(const Tensor& tensor);

// True if products with these weights read rows of ActivationBlocks, false if they read F32 rows.
bool uses_activation_blocks(DType weights);
// Bytes of `k` activations as blocks; k is a multiple of 32. The memory must be 64-byte aligned.
uint64_t activation_row_bytes(int64_t k);
// Rounds rows [row_begin, row_end) of x {k, rows}: row r is read at x + r * x_stride and written at
// blocks + r * activation_row_bytes(k). A row with a value that is not finite gives blocks with
// scale NaN, so that the products show it.
struct QuantiseArgs {
  const std::byte* x = nullptr;
  uint64_t x_stride = 0;  // bytes
  int64_t k = 0;
  std::byte* blocks = nullptr;
};
void quantise_rows(const MatmulKernels& kernels, const QuantiseArgs& args, int64_t row_begin,
                   int64_t row_end);

// y {rows, columns} = weights {k, rows} times x {k, columns}.
struct MatmulArgs {
  WeightMatrix weights;
  const std::byte* x = nullptr;  // ActivationBlocks or F32, see uses_activation_blocks()
  uint64_t x_stride = 0;         // bytes from column to column; F32 columns may repeat with 0
  std::byte* y = nullptr;        // F32; the rows of a column are dense
  uint64_t y_stride = 0;         // bytes from column to column
};

// Half-open ranges of groups of 16 rows and of columns.
struct Piece {
  int64_t group_begin = 0;
  int64_t group_end = 0;
  int64_t column_begin = 0;
  int64_t column_end = 0;
};

// Pieces by number: [0, count) cover groups x columns once.
struct PieceGrid {
  int64_t groups = 0;
  int64_t columns = 0;
  int64_t groups_per_piece = 1;
  int64_t columns_per_piece = 1;
  int64_t group_pieces = 0;
  int64_t count = 0;

  Piece piece(int64_t index) const;
};
// Sizes that keep a piece's weights in the level-2 cache while it walks over its columns, and leave
// several pieces per thread. `threads` only shapes the grid, never the result.
PieceGrid plan_pieces(const WeightMatrix& weights, int64_t columns, int threads);

// Scratch that one thread needs for a piece; 0 for packed weights. 64-byte aligned.
uint64_t matmul_scratch_bytes(const WeightMatrix& weights);
void run_matmul_piece(const MatmulKernels& kernels, const MatmulArgs& args, const Piece& piece,
                      std::span<std::byte> scratch);

// Experts: column (slot, token), numbered slot + n_slots * token, is matrix ids[slot, token] times
// x(slot or 0, token). Ids outside [0, matrices) give columns of NaN.
struct MatmulIdArgs {
  WeightMatrix weights;
  const std::byte* x = nullptr;
  uint64_t x_slot_stride = 0;  // bytes from slot to slot; 0 if all slots share the token's row
  uint64_t x_token_stride = 0;
  std::byte* y = nullptr;
  uint64_t y_slot_stride = 0;
  uint64_t y_token_stride = 0;
  const std::byte* ids = nullptr;  // I32
  uint64_t ids_token_stride = 0;   // bytes; slots are dense
  int64_t n_slots = 1;
};
// Pieces come from plan_pieces(weights, n_slots * n_tokens, threads).
void run_matmul_id_piece(const MatmulKernels& kernels, const MatmulIdArgs& args, const Piece& piece,
                         std::span<std::byte> scratch);

// Row `row` of matrix 0 as F32: equal from packed and from plain memory. Requires: 0 <= row < rows.
void get_weight_row(const WeightMatrix& weights, int64_t row, float* out);

}  // namespace strata::cpu
