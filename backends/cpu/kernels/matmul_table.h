// Fills one path's MatmulKernels; the last include of each matmul_<path>.cpp.
#pragma once

#include "backends/cpu/kernels/matmul.h"
#include "backends/cpu/kernels/quantise_activations.h"

namespace strata::cpu::STRATA_MATMUL_ISA {
namespace {

// In the order of PackedType.
constexpr MatmulKernels kKernels = {
    quantise_row,
    {plain_tile<PlainF32>, plain_tile<PlainF16>, plain_tile<PlainBF16>, block_tile<TypeQ4_0>,
     block_tile<TypeQ4_1>, block_tile<TypeQ5_0>, block_tile<TypeQ5_1>, block_tile<TypeQ8_0>,
     block_tile<TypeQ4_K>, block_tile<TypeQ5_K>, block_tile<TypeQ6_K>},
};

}  // namespace
}  // namespace strata::cpu::STRATA_MATMUL_ISA
