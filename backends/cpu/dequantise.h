// Plain GGUF rows to F32, for embeddings and as the reference of the matrix kernels.
//
// Plain C++ compiled for the baseline processor: equal bits everywhere, and equal to ggml's values.
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/tensor/dtype.h"

namespace strata::cpu {

// Dequantises `k` elements of a row in the file's layout, at any alignment. Requires: a type of
// is_weight_type(), k a multiple of its block.
void dequantise_row(DType dtype, const std::byte* row, int64_t k, float* out);

}  // namespace strata::cpu
