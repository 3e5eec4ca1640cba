// How fast this machine's cores are: what planners divide a model by.
//
// Three measurements, with all threads at once: bytes of weights that the kernels of decoding take
// in, from memory too large for the caches that a core owns; 8-bit multiply-adds through the
// kernels that prompts use; and the same with F32 weights. Each is what the machine sustains:
// rounds are counted over a span of several periods of a processor quota, so that what a quota or a
// host takes away is missing from the result, and the best span counts. The machine should be idle
// meanwhile: one probe at a time per host is the caller's affair.
#pragma once

#include <optional>
#include <stop_token>
#include <vector>

#include "backends/cpu/isa.h"
#include "runtime/base/status.h"
#include "runtime/device/device.h"

namespace strata::cpu {

struct ProbeOptions {
  Isa isa;
  int threads = 1;
  std::vector<int> cpus = {};  // as BackendOptions has them
  double span_seconds = 0.3;   // three periods of a quota, as the kernel sets them
  // Processors at once that a control group allows, if it has a quota: a span that began with
  // unused quota counts no more than that.
  std::optional<double> core_quota = {};
  std::stop_token stop;                      // looked at after each round
  uint64_t read_bytes = uint64_t{96} << 20;  // of weights per round, all threads together; the
                                             // probe takes so much memory, and 4 MiB
};

// Takes about four spans, and a moment to fill memory. Errors: RESOURCE_EXHAUSTED for the memory;
// CANCELLED once told to stop.
Result<DeviceSpeed> probe_speed(const ProbeOptions& options);

}  // namespace strata::cpu
