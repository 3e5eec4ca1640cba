// The kernels of kernels/*.h on the scalar path.
#include "backends/cpu/vec_scalar.h"
//
#include "backends/cpu/kernels/table.h"

namespace strata::cpu {

const KernelTable& kernels_scalar() {
  static const KernelTable table = scalar::make_kernel_table("scalar");
  return table;
}

}  // namespace strata::cpu
