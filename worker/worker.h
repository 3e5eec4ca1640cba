// Worker: one node of a cluster, from start to end.
//
//   probe -> listen -> [join -> serve commands -> the stream ends] with back-off -> leave
//
// Serves one stage at a time (stage_host.h). A coordinator that cannot be reached, or that is
// restarted, is waited for; weights are kept meanwhile. One that refuses this worker (token,
// version, name) ends it with the reason.
//
//   threads: caller's (reads commands), control (heartbeats), loader, acceptor, stage and its pool,
//            one per outgoing stream
//
// This header includes no gRPC.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/remote/channel.h"
#include "runtime/device/device.h"
#include "runtime/topology/thread_pins.h"

namespace strata::worker {

struct WorkerOptions {
  remote::Address coordinator;
  remote::Address listen{"127.0.0.1", 0};
  std::string name;
  uint32_t threads = 0;  // 0: one for each core that this process may use
  PinMode pin = PinMode::automatic;
  // 0: what is free now, less a tenth; shared with the other workers of the host that have 0 here.
  uint64_t memory_limit_bytes = 0;
  std::vector<std::string> model_folders;
  std::string cache_folder;
  // The cluster's token; asked before each attempt to join, since a coordinator that starts later
  // makes the file. NOT_FOUND means: not yet.
  std::function<Result<std::string>()> read_token;
  bool insecure_network = false;
  std::optional<DeviceSpeed> speed;  // in place of a measurement
  std::string isa;                   // the CPU's vector path; empty: the best
  std::stop_token stop;              // ends a create() that measures, or waits for its turn
};

class Worker {
 public:
  // Probes the hardware. Errors: INVALID_ARGUMENT for a name or option; PERMISSION_DENIED for an
  // address beyond loopback; those of the probe; CANCELLED by the options' stop token.
  static Result<std::unique_ptr<Worker>> create(const WorkerOptions& options);
  virtual ~Worker() = default;

  // Serves until stop() (ok) or a refusal.
  virtual Status run() = 0;
  // Leaves the cluster and makes run() return within about a second. Threads: any.
  virtual void stop(const std::string& reason) = 0;
};

}  // namespace strata::worker
