// The matrix kernels' avx512 path; flags in CMakeLists.txt.
#include "backends/cpu/kernels/matmul_lanes_avx512.h"
//
#include "backends/cpu/kernels/quantise_lanes_avx.h"
//
#include "backends/cpu/kernels/matmul_table.h"

namespace strata::cpu {

const MatmulKernels& matmul_kernels_avx512() { return matmul_avx512::kKernels; }

}  // namespace strata::cpu
