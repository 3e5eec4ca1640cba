// The matrix kernels' avx2_vnni path; flags in CMakeLists.txt.
#define STRATA_MATMUL_VNNI 1
#include "backends/cpu/kernels/matmul_lanes_avx2.h"
//
#include "backends/cpu/kernels/quantise_lanes_avx.h"
//
#include "backends/cpu/kernels/matmul_table.h"

namespace strata::cpu {

const MatmulKernels& matmul_kernels_avx2_vnni() { return matmul_avx2_vnni::kKernels; }

}  // namespace strata::cpu
