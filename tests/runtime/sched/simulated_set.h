// Several simulated devices and a scheduler over them, for the tests of this folder.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/memory/linear_allocator.h"
#include "runtime/sched/scheduler.h"
#include "tests/support/random_graph.h"
#include "tests/support/simulated_device.h"

namespace strata::testing {

inline std::vector<SimulatedDeviceOptions> plain_devices(size_t count) {
  return std::vector<SimulatedDeviceOptions>(count);
}

class SimulatedSet {
 public:
  // Names, memory and so on as given; the last one is the fallback.
  explicit SimulatedSet(std::vector<SimulatedDeviceOptions> options,
                        std::shared_ptr<SimulatedCounters> counters = nullptr) {
    for (size_t i = 0; i < options.size(); ++i) {
      options[i].name = "SIM" + std::to_string(i);
      devices_.push_back(std::make_unique<SimulatedDevice>(options[i], counters));
    }
  }

  SimulatedDevice& device(size_t i) { return *devices_[i]; }
  size_t size() const { return devices_.size(); }
  std::vector<const Device*> list() const {
    std::vector<const Device*> result;
    for (const auto& device : devices_) result.push_back(device.get());
    return result;
  }
  std::unique_ptr<Scheduler> scheduler(int n_copies = 1) {
    std::vector<std::unique_ptr<Backend>> backends;
    for (const auto& device : devices_) backends.push_back(device->create_backend({}).value());
    return Scheduler::create(std::move(backends), {n_copies}).value();
  }
  // Places the tensor as a weight in that device's memory.
  void place(Tensor& weight, size_t device) {
    LinearAllocator allocator(devices_[device]->compute_buffer_type());
    allocator.add(weight);
    auto buffers = allocator.allocate(BufferUsage::weights).value();
    for (auto& buffer : buffers) buffers_.push_back(std::move(buffer));
  }
  // The same for a cache.
  void place_cache(Tensor& cache, size_t device) {
    place(cache, device);
    buffers_.back()->usage = BufferUsage::any;
  }
  // Each weight somewhere, caches in pairs on a device that can write them.
  void place_randomly(RandomGraph& random, std::mt19937_64& source) {
    for (Tensor& weight : random.weights()) {
      size_t device = source() % devices_.size();
      if (!weight.name.starts_with("cache")) {
        place(weight, device);
        continue;
      }
      device = static_cast<size_t>(weight.name.back() - '0' + 1) % devices_.size();
      if (devices_[device]->options().refused.contains(Op::kv_write)) device = devices_.size() - 1;
      place_cache(weight, device);
    }
  }
  void write_weights(RandomGraph& random) {
    for (Tensor& weight : random.weights()) {
      const Status status = weight.buffer->write(weight, 0, random.initial_bytes(weight));
      STRATA_CHECK(status.ok(), status.to_string());
    }
  }

 private:
  std::vector<std::unique_ptr<SimulatedDevice>> devices_;
  std::vector<std::unique_ptr<Buffer>> buffers_;  // before the devices they came from go
};

// A weight without memory yet.
inline Tensor make_weight(std::string name, const Dims& ne) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.ne = ne;
  tensor.nb = dense_strides(DType::f32, ne).value();
  return tensor;
}

inline std::span<const std::byte> bytes_of(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

inline std::vector<float> read_floats(Scheduler& scheduler, const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.element_count()));
  const Status status = scheduler.read_output(tensor, std::as_writable_bytes(std::span(values)));
  STRATA_CHECK(status.ok(), status.to_string());
  return values;
}

}  // namespace strata::testing
