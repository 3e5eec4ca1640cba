// A small graph in host memory, random inputs, and CPU backends of every vector path to run it on.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/isa.h"
#include "runtime/device/device.h"
#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"
#include "tests/support/reference_ops.h"

namespace strata::cpu {

// What results were on another machine: "NAME SHA256" lines of a file of tests/data.
inline std::map<std::string, std::string> golden_digests(const std::string& file_name) {
  std::map<std::string, std::string> digests;
  std::ifstream file(std::string(STRATA_TEST_DATA) + "/" + file_name);
  for (std::string name, digest; file >> name >> digest;) digests[name] = digest;
  return digests;
}

// A device and a backend of it.
struct CpuUnderTest {
  std::unique_ptr<Device> device;
  std::unique_ptr<Backend> backend;
};

inline CpuUnderTest make_cpu(Isa isa, int threads) {
  std::string name = isa_name(isa);
  if (!isa.vnni && isa.level != IsaLevel::scalar) name += "-vnni";
  CpuUnderTest cpu;
  cpu.device = make_cpu_device({.isa = name}).value();
  cpu.backend = cpu.device->create_backend({.threads = threads}).value();
  return cpu;
}

class TestGraph {
 public:
  explicit TestGraph(uint64_t seed = 1) : random_(seed) {}

  Graph& graph() { return graph_; }

  // A leaf with bell-shaped random numbers (F32) or zeros (others), placed at once. The numbers are
  // the same on every machine.
  Tensor* leaf(DType dtype, const Dims& ne, float deviation = 1.0f) {
    Tensor& tensor = leaves_.emplace_back();
    tensor.name = "leaf" + std::to_string(leaves_.size());
    tensor.dtype = dtype;
    tensor.ne = ne;
    tensor.nb = dense_strides(dtype, ne).value();
    give_memory(tensor);
    if (dtype == DType::f32) {
      float* values = floats(&tensor);
      for (int64_t i = 0; i < tensor.element_count(); ++i) values[i] = deviation * bell();
    }
    return &tensor;
  }
  Tensor* ints(const std::vector<int32_t>& values) {
    Tensor* tensor = leaf(DType::i32, {static_cast<int64_t>(values.size()), 1, 1, 1});
    std::memcpy(tensor->data, values.data(), values.size() * sizeof(int32_t));
    return tensor;
  }

  // Gives the nodes memory, each its own, full of NaN.
  void place_nodes() {
    for (Tensor* node : graph_.nodes()) {
      if (node->buffer != nullptr) continue;
      if (node->view_source != nullptr) {
        place_view(*node);
      } else {
        give_memory(*node);
        std::memset(node->data, 0xff, node->size_bytes());
      }
    }
  }

  Status run(Backend& backend) { return backend.compute({graph_.nodes(), 0}); }
  void run_reference() {
    for (Tensor* node : graph_.nodes()) {
      const Status status = strata::testing::run_reference(*node, strata::testing::plain_address);
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }

  static float* floats(const Tensor* tensor) { return reinterpret_cast<float*>(tensor->data); }
  static std::vector<std::byte> bytes(const Tensor* tensor) {
    return {tensor->data, tensor->data + tensor->size_bytes()};
  }
  static std::vector<float> values(const Tensor* tensor) {
    return {floats(tensor), floats(tensor) + tensor->element_count()};
  }

 private:
  // The sum of four 16-bit numbers, scaled to mean 0 and deviation 1: exact in float.
  float bell() {
    const uint64_t bits = random_();
    const uint64_t sum =
        (bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48);
    return (static_cast<float>(sum) - 131070.0f) / 37837.0f;
  }
  void give_memory(Tensor& tensor) {
    buffers_.push_back(host_buffer_type().allocate(tensor.size_bytes()).value());
    place(tensor, *buffers_.back(), 0);
  }

  std::mt19937_64 random_;
  Graph graph_;
  std::deque<Tensor> leaves_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace strata::cpu
