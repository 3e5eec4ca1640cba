// The matrix kernels' avx2 path; flags in CMakeLists.txt.
#include "backends/cpu/kernels/matmul_lanes_avx2.h"
//
#include "backends/cpu/kernels/quantise_lanes_avx.h"
//
#include "backends/cpu/kernels/matmul_table.h"

namespace strata::cpu {

const MatmulKernels& matmul_kernels_avx2() { return matmul_avx2::kKernels; }

}  // namespace strata::cpu
