// Pipelining: micro-batches overlap on two devices, copies do not overwrite each other, memory does
// not multiply.
#include <gtest/gtest.h>

#include <chrono>

#include "runtime/graph/ops.h"
#include "tests/runtime/sched/simulated_set.h"

namespace strata {
namespace {

using testing::bytes_of;
using testing::make_weight;
using testing::plain_devices;
using testing::read_floats;
using testing::SimulatedCounters;
using testing::SimulatedDeviceOptions;
using testing::SimulatedSet;

constexpr int64_t kWidth = 32;

// Layers of norm, up, gate, down and residual sum, the first half on the first device and so on.
class Layers {
 public:
  Layers(SimulatedSet& set, int n_layers, int64_t n_tokens) {
    const Dims shape = {kWidth, n_tokens, 1, 1};
    input = graph.new_input("x", DType::f32, shape);
    Tensor* x = input;
    for (int i = 0; i < n_layers; ++i) {
      const size_t device = static_cast<size_t>(i) * set.size() / static_cast<size_t>(n_layers);
      Tensor* norm = weight(set, device, {kWidth, 1, 1, 1}, 1.0f);
      Tensor* up = weight(set, device, {kWidth, 3 * kWidth, 1, 1}, 0.01f);
      Tensor* gate = weight(set, device, {kWidth, 3 * kWidth, 1, 1}, 0.02f);
      Tensor* down = weight(set, device, {3 * kWidth, kWidth, 1, 1}, 0.03f);
      Tensor* h = ops::rms_norm(graph, x, norm, 1e-5f);
      Tensor* both = ops::gated(graph, ops::mul_mat(graph, gate, h), ops::mul_mat(graph, up, h),
                                Activation::silu);
      x = ops::add(graph, ops::mul_mat(graph, down, both), x);
    }
    output = x;
    graph.mark_output(output);
  }

  Graph graph;
  Tensor* input = nullptr;
  Tensor* output = nullptr;

 private:
  Tensor* weight(SimulatedSet& set, size_t device, const Dims& ne, float value) {
    weights_.push_back(make_weight("w" + std::to_string(weights_.size()), ne));
    Tensor& tensor = weights_.back();
    set.place(tensor, device);
    std::vector<float> values(static_cast<size_t>(tensor.element_count()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = value * static_cast<float>(i % 7 + 1);
    EXPECT_TRUE(tensor.buffer->write(tensor, 0, bytes_of(values)).ok());
    return &tensor;
  }

  std::deque<Tensor> weights_;
};

std::vector<float> micro_batch(int number, int64_t n_tokens) {
  std::vector<float> values(static_cast<size_t>(kWidth * n_tokens));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((static_cast<int>(i) * 13 + number * 7) % 31) / 31.0f;
  }
  return values;
}

TEST(Pipelining, OverlapsMicroBatchesWithEqualResults) {
  using namespace std::chrono_literals;
  constexpr int kBatches = 12;
  std::vector<std::vector<float>> expected;
  for (const int n_copies : {1, 2, 3, 4}) {
    SCOPED_TRACE(n_copies);
    const auto counters = std::make_shared<SimulatedCounters>();
    SimulatedDeviceOptions slow;
    slow.compute_delay = 3ms;
    SimulatedSet set({slow, slow}, counters);
    Layers layers(set, 4, 2);
    const auto scheduler = set.scheduler(n_copies);
    std::vector<std::vector<float>> results(kBatches, std::vector<float>(kWidth * 2));
    for (int i = 0; i < kBatches; ++i) {
      ASSERT_TRUE(scheduler->prepare(layers.graph).ok());
      ASSERT_TRUE(scheduler->set_input(*layers.input, bytes_of(micro_batch(i, 2))).ok());
      ASSERT_TRUE(scheduler->compute_async(layers.graph).ok());
      const auto out = std::as_writable_bytes(std::span(results[static_cast<size_t>(i)]));
      ASSERT_TRUE(scheduler->read_output_async(*layers.output, out).ok());
    }
    ASSERT_TRUE(scheduler->synchronize().ok());
    if (n_copies == 1) {
      // One by one, waiting each time: the truth.
      for (int i = 0; i < kBatches; ++i) {
        ASSERT_TRUE(scheduler->set_input(*layers.input, bytes_of(micro_batch(i, 2))).ok());
        ASSERT_TRUE(scheduler->compute(layers.graph).ok());
        expected.push_back(read_floats(*scheduler, *layers.output));
      }
    } else {
      EXPECT_EQ(counters->running_max, 2u);  // both devices were at work at once
    }
    EXPECT_EQ(results, expected);
  }
}

TEST(Pipelining, SwitchingGraphsInBetweenIsSafe) {
  using namespace std::chrono_literals;
  SimulatedDeviceOptions slow;
  slow.node_delay = 200us;
  SimulatedSet set({slow, slow});
  Layers token(set, 4, 1), prompt(set, 4, 8);
  const auto scheduler = set.scheduler(3);
  std::vector<std::vector<float>> results, expected;
  for (const bool wait : {false, true}) {
    std::vector<std::vector<float>>& out = wait ? expected : results;
    for (int i = 0; i < 16; ++i) {
      const int64_t n_tokens = i % 3 == 1 ? 8 : 1;
      out.emplace_back(static_cast<size_t>(kWidth * n_tokens));
    }
    for (int i = 0; i < 16; ++i) {
      Layers& layers = i % 3 == 1 ? prompt : token;
      const std::vector<float> in = micro_batch(i, i % 3 == 1 ? 8 : 1);
      ASSERT_TRUE(scheduler->prepare(layers.graph).ok());
      ASSERT_TRUE(scheduler->set_input(*layers.input, bytes_of(in)).ok());
      ASSERT_TRUE(scheduler->compute_async(layers.graph).ok());
      const auto bytes = std::as_writable_bytes(std::span(out[static_cast<size_t>(i)]));
      ASSERT_TRUE(scheduler->read_output_async(*layers.output, bytes).ok());
      ASSERT_TRUE(!wait || scheduler->synchronize().ok());
    }
    ASSERT_TRUE(scheduler->synchronize().ok());
  }
  EXPECT_EQ(results, expected);
}

uint64_t compute_bytes(size_t n_devices, int n_copies) {
  SimulatedSet set(plain_devices(n_devices));
  Layers layers(set, 8, 64);
  const auto scheduler = set.scheduler(n_copies);
  EXPECT_TRUE(scheduler->reserve(layers.graph).ok());
  uint64_t most = 0;
  for (const SchedulerMemory& memory : scheduler->memory()) {
    most = std::max(most, memory.compute_bytes);
  }
  return most;
}

TEST(Pipelining, CopiesDoNotMultiplyTheBuffers) {
  const double one = static_cast<double>(compute_bytes(1, 1));
  for (const size_t n_devices : {2, 4}) {
    for (const int n_copies : {1, 2, 3, 4}) {
      const double each = static_cast<double>(compute_bytes(n_devices, n_copies));
      EXPECT_LE(each / one, n_copies == 1 ? 1.2 : 2.2) << n_devices << " devices, " << n_copies;
      RecordProperty("ratio", std::to_string(each / one));
    }
  }
}

}  // namespace
}  // namespace strata
