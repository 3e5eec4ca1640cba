// The path of every token: preparing a known graph, setting its inputs and running it allocates
// nothing and plans nothing. Counts every operator new of the process, hence a binary of its own.
#include <gtest/gtest.h>

#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/sched/scheduler.h"
#include "tests/runtime/sched/simulated_set.h"
#include "tests/support/counted_allocations.h"

namespace strata {
namespace {

using testing::allocations_of;
using testing::bytes_of;
using testing::SimulatedDevice;
using testing::SimulatedDeviceOptions;

// A CPU without work: what is left is the scheduler's own cost.
class IdleBackend final : public Backend {
 public:
  explicit IdleBackend(const Device& device) : device_(device) {}
  const Device& device() const override { return device_; }
  Status compute(const GraphView& graph) override {
    ++computes;
    nodes += graph.nodes.size();
    return ok_status();
  }
  Status synchronize() override { return ok_status(); }
  Status write_async(const Tensor&, uint64_t, std::span<const std::byte>) override {
    return internal_error("no queue");
  }
  Status read_async(const Tensor&, uint64_t, std::span<std::byte>) override {
    return internal_error("no queue");
  }
  Result<bool> copy_async(Backend&, const Tensor&, const Tensor&) override { return false; }

  uint64_t computes = 0;
  uint64_t nodes = 0;

 private:
  const Device& device_;
};

TEST(SteadyState, AllocatesNothingPerToken) {
  SimulatedDeviceOptions options;
  options.host_memory = true;
  SimulatedDevice device(options);
  auto owned = std::make_unique<IdleBackend>(device);
  const IdleBackend& backend = *owned;
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::move(owned));
  const auto scheduler = Scheduler::create(std::move(backends)).value();

  // As a stage has them: one graph per shape, used in turn.
  Graph token, prompt;
  Tensor* inputs[2];
  Tensor* outputs[2];
  Graph* graphs[2] = {&token, &prompt};
  for (int g = 0; g < 2; ++g) {
    inputs[g] = graphs[g]->new_input("x", DType::f32, {64, g == 0 ? 1 : 32, 1, 1});
    Tensor* x = inputs[g];
    for (int i = 0; i < 500; ++i) x = ops::scale(*graphs[g], x, 1.5f);
    outputs[g] = x;
    graphs[g]->mark_output(x);
  }
  ASSERT_TRUE(scheduler->reserve(graphs).ok());
  std::vector<float> in(64 * 32), out(64 * 32);
  const auto run = [&](int g) {
    const size_t size = static_cast<size_t>(inputs[g]->element_count());
    const std::span<float> given(in.data(), size), taken(out.data(), size);
    return scheduler->prepare(*graphs[g]).ok() &&
           scheduler->set_input(*inputs[g], std::as_bytes(given)).ok() &&
           scheduler->compute(*graphs[g]).ok() &&
           scheduler->read_output(*outputs[g], std::as_writable_bytes(taken)).ok();
  };
  ASSERT_TRUE(run(0) && run(1));
  const uint64_t allocations = allocations_of([&] {
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(run(i % 3 == 0 ? 1 : 0));
  });
  EXPECT_EQ(allocations, 0u);
  EXPECT_EQ(backend.computes, 1002u);  // one call per run: no splits
  EXPECT_EQ(backend.nodes, 1002u * 500);
}

}  // namespace
}  // namespace strata
