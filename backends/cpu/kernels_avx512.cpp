// The kernels of kernels/*.h on the avx512 path.
#include "backends/cpu/vec_avx512.h"
//
#include "backends/cpu/kernels/table.h"

namespace strata::cpu {

const KernelTable& kernels_avx512() {
  static const KernelTable table = avx512::make_kernel_table("avx512");
  return table;
}

}  // namespace strata::cpu
