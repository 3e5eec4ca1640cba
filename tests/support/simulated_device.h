// SimulatedDevice: an accelerator that is not there, to prove the seam between runtime and devices.
//
// Its memory hands out addresses in a reservation that nobody may touch (a stray host access ends
// the test), while the bytes lie elsewhere and start poisoned. It has a size limit per buffer and
// in total, ops that it refuses or wants, a queue on a thread of its own with events, delays, and
// computes by the reference ops. It checks what the scheduler promises: every source lies in memory
// that the device can read, and inside its buffer.
//
// Threads: device from any; a backend from one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/device/device.h"

namespace strata::testing {

struct SimulatedDeviceOptions {
  std::string name = "SIM0";
  DeviceKind kind = DeviceKind::gpu;
  uint64_t max_buffer_bytes = UINT64_MAX;
  uint64_t total_bytes = uint64_t{1} << 30;
  std::set<Op> refused;
  std::set<Op> wanted;
  std::chrono::microseconds node_delay{0};     // per node that works
  std::chrono::microseconds compute_delay{0};  // per compute(), such as for a layer
  bool has_queue = true;
  bool copies_directly = true;  // from other simulated devices and from the host
  bool host_memory = false;     // works in ordinary memory, as a CPU does
  bool reads_host = false;      // can read ordinary memory besides its own
};

// What a device did so far.
struct SimulatedCounters {
  std::atomic<uint64_t> computes{0};
  std::atomic<uint64_t> nodes{0};
  std::atomic<uint64_t> direct_copies{0};
  std::atomic<uint64_t> running{0};  // now, over all devices that share the counters
  std::atomic<uint64_t> running_max{0};
  std::atomic<int64_t> allocated_bytes{0};
};

class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(SimulatedDeviceOptions options,
                           std::shared_ptr<SimulatedCounters> counters = nullptr);
  ~SimulatedDevice() override;

  std::string_view name() const override { return options_.name; }
  std::string_view description() const override { return "simulated"; }
  DeviceKind kind() const override { return options_.kind; }
  DeviceMemory memory() const override;
  const BufferType& compute_buffer_type() const override;
  std::vector<const BufferType*> weight_buffer_types() const override;
  bool supports(const Tensor& node) const override;
  bool supports_buffer_type(const BufferType& type) const override;
  bool wants(const Tensor& node) const override { return options_.wanted.contains(node.op); }
  Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) const override;

  const SimulatedDeviceOptions& options() const { return options_; }
  SimulatedCounters& counters() const { return *counters_; }

 private:
  class Memory;

  const SimulatedDeviceOptions options_;
  const std::shared_ptr<SimulatedCounters> counters_;
  std::unique_ptr<Memory> memory_;  // its buffer type
};

// Where the bytes of a tensor on a simulated device, or on the host, really are.
std::byte* simulated_address(const Tensor& tensor);

}  // namespace strata::testing
