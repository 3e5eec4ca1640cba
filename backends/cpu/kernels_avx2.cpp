// The kernels of kernels/*.h on the avx2 path.
#include "backends/cpu/vec_avx2.h"
//
#include "backends/cpu/kernels/table.h"

namespace strata::cpu {

const KernelTable& kernels_avx2() {
  static const KernelTable table = avx2::make_kernel_table("avx2");
  return table;
}

}  // namespace strata::cpu
