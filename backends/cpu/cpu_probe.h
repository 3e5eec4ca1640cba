// How fast this machine's cores are: what planners divide a model by.
//
// Three measurements of some 0.2 s each, with all threads at once: bytes of weights that the
// kernels of decoding take in, from memory too large for the caches that a core owns; 8-bit
// multiply-adds through the kernels that prompts use; and the same with F32 weights. The machine
// should be idle meanwhile: one probe at a time per host is the caller's affair.
#pragma once

#include <stop_token>
#include <vector>

#include "backends/cpu/isa.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"

namespace strata::cpu {

struct ProbeOptions {
  Isa isa;
  int threads = 1;
  std::vector<int> cpus = {};                // as BackendOptions has them
  double seconds = 0.2;                      // for each measurement, at least one round
  std::stop_token stop;                      // looked at after each round
  uint64_t read_bytes = uint64_t{96} << 20;  // of weights per round, all threads together
};

// Takes about 3 * seconds, and a moment to fill memory. Errors: RESOURCE_EXHAUSTED for the memory;
// CANCELLED once told to stop.
Result<DeviceSpeed> probe_speed(const ProbeOptions& options);

}  // namespace strata::cpu
