#include "backends/cpu/vec_avx512.h"
//
#include "tests/backends/cpu/vec_probe_body.h"

namespace strata::cpu {

const VecProbe& vec_probe_avx512() {
  static const VecProbe probe = avx512::make_probe();
  return probe;
}

}  // namespace strata::cpu
