// The matrix kernels' scalar path; flags in CMakeLists.txt.
#include "backends/cpu/kernels/matmul_lanes_scalar.h"
#include "backends/cpu/kernels/matmul_table.h"

namespace strata::cpu {

const MatmulKernels& matmul_kernels_scalar() { return matmul_scalar::kKernels; }

}  // namespace strata::cpu
