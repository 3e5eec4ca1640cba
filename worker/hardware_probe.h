// What this machine offers: its devices with memory and measured speed, for the Hello.
//
// Measuring takes over a second and wants an idle machine, so that workers of one host take turns,
// whoever runs them; --speed skips it. Threads: one caller.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/remote/cluster_records.h"
#include "runtime/device/registry.h"

namespace strata::worker {

struct ProbeRequest {
  int threads = 1;
  std::vector<int> cpus = {};  // as BackendOptions has them
  // Given in place of a measurement.
  std::optional<DeviceSpeed> speed;
  std::string isa;  // the CPU's vector path; empty: the best
  // That the worker may use, measuring included; 0: what is free.
  uint64_t memory_limit_bytes = 0;
  // Who measures at a time holds this name, in the host's abstract socket names.
  std::string turn_name = "strata-probe";
  std::stop_token stop;  // ends the wait for a turn, and the measuring
};

// "READ_GB_S,INT8_GOPS,F32_GFLOPS", such as "20,400,100". Errors: INVALID_ARGUMENT.
Result<DeviceSpeed> parse_speed(const std::string& text);

// Waits for its turn (30 s at most, then measures all the same and says so), measures each CPU
// device. Errors: those of the measurement; CANCELLED by the stop token.
Result<std::vector<remote::DeviceReport>> probe_devices(const DeviceRegistry& registry,
                                                        const ProbeRequest& request);

// Equal in processes that share the memory which host_memory() reports: the same host, since it
// was booted, and the same limit of a container. A digest, since the ids of a machine are nobody
// else's business; 32 hex digits, or empty where the kernel does not say.
std::string host_id();

}  // namespace strata::worker
