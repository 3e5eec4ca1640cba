#include "backends/cpu/vec_scalar.h"
//
#include "tests/backends/cpu/vec_probe_body.h"

namespace strata::cpu {

const VecProbe& vec_probe_scalar() {
  static const VecProbe probe = scalar::make_probe();
  return probe;
}

}  // namespace strata::cpu
