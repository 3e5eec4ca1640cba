#include "backends/cpu/vec_avx2.h"
//
#include "tests/backends/cpu/vec_probe_body.h"

namespace strata::cpu {

const VecProbe& vec_probe_avx2() {
  static const VecProbe probe = avx2::make_probe();
  return probe;
}

}  // namespace strata::cpu
