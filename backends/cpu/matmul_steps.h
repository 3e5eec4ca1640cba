// Steps around the matrix kernels of matmul.h: rounding activations, products, expert products and
// rows of a table.
#pragma once

#include <memory>
#include <span>

#include "backends/cpu/item_step.h"

namespace strata::cpu {

bool supports_mul_mat(const Tensor& node);
bool supports_mul_mat_id(const Tensor& node);
bool supports_get_rows(const Tensor& node);

// Where a product finds its activations as blocks.
inline constexpr uint64_t kNoBlocks = UINT64_MAX;

// Whether the node (mul_mat, mul_mat_id) reads its source 1 rounded to blocks.
bool needs_activation_blocks(const Tensor& node);
uint64_t activation_blocks_bytes(const Tensor& x);
// Rounds all rows of x into the workspace at `offset`.
std::unique_ptr<ItemStep> make_quantise_step(const Tensor& x, uint64_t offset);

// Products of several weights with one x, in one go. `blocks` as kNoBlocks or an offset, the same
// for all. Requires: at least one node.
std::unique_ptr<Step> make_mul_mat_step(std::span<const Tensor* const> nodes, uint64_t blocks,
                                        int threads);
std::unique_ptr<Step> make_mul_mat_id_step(const Tensor& node, uint64_t blocks, int threads);
std::unique_ptr<ItemStep> make_get_rows_step(const Tensor& node);

}  // namespace strata::cpu
