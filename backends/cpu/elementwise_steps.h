// Steps that work row by row: norms, sums, products, activations, copies.
#pragma once

#include <memory>

#include "backends/cpu/item_step.h"

namespace strata::cpu {

// Whether make_row_step takes the node; by op, types and strides.
bool supports_row_step(const Tensor& node);
// For add, multiply, scale, sum, rms_norm, layer_norm, activate, gated, soft_cap and contiguous.
// Requires: supports_row_step(node), everything is placed. The node may share memory with its first
// source.
std::unique_ptr<ItemStep> make_row_step(const Tensor& node);

}  // namespace strata::cpu
