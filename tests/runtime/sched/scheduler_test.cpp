// Scheduler: random graphs over several simulated devices give the bits of one; plans are kept,
// moved and given up as promised; errors say what and where.
#include "runtime/sched/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"
#include "tests/runtime/sched/simulated_set.h"

namespace strata {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::make_weight;
using testing::plain_devices;
using testing::RandomGraph;
using testing::RandomGraphOptions;
using testing::read_floats;
using testing::SimulatedDevice;
using testing::SimulatedDeviceOptions;
using testing::SimulatedSet;

using Outputs = std::vector<std::vector<std::byte>>;

Outputs expected_outputs(const RandomGraphOptions& options) {
  RandomGraph plain(options);
  const auto weights = testing::place_weights(plain, host_buffer_type());
  const auto buffers = testing::place_one_by_one(plain.graph(), std::byte{0x7f});
  testing::run_on_host(plain);
  return testing::output_bytes(plain.graph());
}

Status set_inputs(Scheduler& scheduler, RandomGraph& random) {
  TRY(scheduler.prepare(random.graph()));
  for (Tensor* input : random.graph().inputs()) {
    TRY(scheduler.set_input(*input, random.initial_bytes(*input)));
  }
  return ok_status();
}

Outputs run(Scheduler& scheduler, RandomGraph& random) {
  Status status = set_inputs(scheduler, random);
  if (status.ok()) status = scheduler.compute(random.graph());
  EXPECT_TRUE(status.ok()) << status.to_string();
  Outputs all;
  for (const Tensor* output : random.graph().outputs()) {
    std::vector<std::byte>& bytes = all.emplace_back(output->size_bytes());
    const Status read = scheduler.read_output(*output, bytes);
    EXPECT_TRUE(read.ok()) << read.to_string();
  }
  return all;
}

// Devices with random refusals, queues or none, direct copies or none, shared memory or none.
std::vector<SimulatedDeviceOptions> random_devices(std::mt19937_64& source, size_t count) {
  const Op candidates[] = {Op::add,  Op::mul_mat,  Op::rms_norm,  Op::soft_cap, Op::contiguous,
                           Op::rope, Op::get_rows, Op::attention, Op::kv_write, Op::sum};
  std::vector<SimulatedDeviceOptions> options(count);
  for (SimulatedDeviceOptions& each : options) {
    const bool is_last = &each == &options.back();
    each.has_queue = source() % 4 != 0;
    each.copies_directly = source() % 4 != 0;
    each.host_memory = is_last && source() % 2 == 0;
    each.reads_host = !is_last && source() % 6 == 0;
    for (const Op op : candidates) {
      if (!is_last && source() % 3 == 0) each.refused.insert(op);
      if (!is_last && source() % 8 == 0) each.wanted.insert(op);
    }
  }
  return options;
}

TEST(Scheduler, GivesOneDevicesBitsOnSeveral) {
  for (uint64_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 source(seed);
    const RandomGraphOptions options = {.seed = seed,
                                        .node_count = 10 + static_cast<int>(seed % 50)};
    RandomGraph random(options);
    SimulatedSet set(random_devices(source, 1 + seed % 4));
    set.place_randomly(random, source);
    set.write_weights(random);
    const auto scheduler = set.scheduler(1 + static_cast<int>(seed % 3));
    ASSERT_EQ(run(*scheduler, random), expected_outputs(options));
    ASSERT_EQ(run(*scheduler, random), expected_outputs(options));  // with the plan kept
  }
}

TEST(Scheduler, GivesTheSameWithManyGraphsInTheSameMemory) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 source(seed);
    SimulatedSet set(random_devices(source, 3));
    const auto scheduler = set.scheduler(1 + static_cast<int>(seed % 2));
    std::vector<RandomGraphOptions> options;
    std::vector<std::unique_ptr<RandomGraph>> graphs;
    for (int g = 0; g < 4; ++g) {
      options.push_back({.seed = seed * 10 + g, .node_count = 20 + 10 * g, .n_tokens = 1 + g});
      graphs.push_back(std::make_unique<RandomGraph>(options.back()));
      set.place_randomly(*graphs.back(), source);
      set.write_weights(*graphs.back());
    }
    for (int round = 0; round < 12; ++round) {
      const size_t g = source() % graphs.size();
      ASSERT_EQ(run(*scheduler, *graphs[g]), expected_outputs(options[g])) << "graph " << g;
    }
  }
}

TEST(Scheduler, ReservedMemoryServesEveryReservedGraph) {
  SimulatedSet set(plain_devices(2));
  const auto scheduler = set.scheduler();
  std::mt19937_64 source(5);
  RandomGraph prompt({.seed = 5, .node_count = 60, .n_tokens = 16});
  RandomGraph token({.seed = 5, .node_count = 60, .n_tokens = 1});
  for (RandomGraph* random : {&prompt, &token}) {
    set.place_randomly(*random, source);
    set.write_weights(*random);
  }
  const std::vector<Graph*> graphs = {&token.graph(), &prompt.graph()};
  ASSERT_TRUE(scheduler->reserve(graphs).ok());
  const auto held = scheduler->memory();
  EXPECT_GT(held[0].compute_bytes + held[1].compute_bytes, 0u);
  for (RandomGraph* random : {&token, &prompt, &token}) run(*scheduler, *random);
  for (size_t b = 0; b < held.size(); ++b) {
    EXPECT_EQ(scheduler->memory()[b].compute_bytes, held[b].compute_bytes);
  }
}

// out = w1 * (w0 * x): w0 on device 0, w1 on device 1.
class TwoDevices : public ::testing::Test {
 protected:
  void build(SimulatedDeviceOptions first = {}, SimulatedDeviceOptions second = {}) {
    set = std::make_unique<SimulatedSet>(std::vector{first, second});
    set->place(w0, 0);
    set->place(w1, 1);
    for (Tensor* weight : {&w0, &w1}) {
      ASSERT_TRUE(weight->buffer->write(*weight, 0, bytes_of({2, 0, 0, 2})).ok());
    }
    x = graph.new_input("x", DType::f32, {2, 1, 1, 1});
    middle = ops::mul_mat(graph, &w0, x);
    out = ops::mul_mat(graph, &w1, middle);
    graph.mark_output(out);
    scheduler = set->scheduler();
  }

  Tensor w0 = make_weight("w0", {2, 2, 1, 1});
  Tensor w1 = make_weight("w1", {2, 2, 1, 1});
  std::unique_ptr<SimulatedSet> set;
  Graph graph;
  Tensor* x = nullptr;
  Tensor* middle = nullptr;
  Tensor* out = nullptr;
  std::unique_ptr<Scheduler> scheduler;
};

TEST_F(TwoDevices, RunWhereTheWeightsAre) {
  build();
  ASSERT_TRUE(scheduler->prepare(graph).ok());
  ASSERT_TRUE(scheduler->set_input(*x, bytes_of({1, 3})).ok());
  ASSERT_TRUE(scheduler->compute(graph).ok());
  EXPECT_EQ(read_floats(*scheduler, *out), (std::vector<float>{4, 12}));
  EXPECT_EQ(set->device(0).counters().nodes, 1u);
  EXPECT_EQ(set->device(1).counters().nodes, 1u);
  EXPECT_EQ(set->device(1).counters().direct_copies, 1u);
  EXPECT_EQ(scheduler->describe_splits(graph).value(),
            "split 0 on SIM0: 1 nodes, mul_mat F32 {2} (mul_mat) to mul_mat F32 {2} (mul_mat)\n"
            "split 1 on SIM1: 1 nodes, mul_mat F32 {2} (mul_mat) to mul_mat F32 {2} (mul_mat)\n"
            "  copies mul_mat F32 {2} (8 B) from SIM0\n");
}

TEST_F(TwoDevices, PinsMoveANode) {
  build();
  scheduler->pin(*out, 0);
  ASSERT_TRUE(scheduler->prepare(graph).ok());
  ASSERT_TRUE(scheduler->set_input(*x, bytes_of({1, 3})).ok());
  ASSERT_TRUE(scheduler->compute(graph).ok());
  EXPECT_EQ(read_floats(*scheduler, *out), (std::vector<float>{4, 12}));
  EXPECT_EQ(set->device(0).counters().nodes, 2u);
  EXPECT_EQ(set->device(1).counters().nodes, 0u);
}

TEST_F(TwoDevices, SayWhichNodeNobodyRuns) {
  SimulatedDeviceOptions refusing;
  refusing.refused = {Op::mul_mat};
  build(refusing, refusing);
  const Status status = scheduler->compute(graph);
  EXPECT_EQ(status.code(), StatusCode::unimplemented);
  EXPECT_THAT(status.message(), HasSubstr("no device runs the node mul_mat F32 {2} (mul_mat)"));
  EXPECT_THAT(status.message(), HasSubstr("w0 F32 {2, 2}"));
  EXPECT_THAT(status.message(), HasSubstr("asked: SIM0, SIM1"));
}

TEST_F(TwoDevices, SayWhatIsMissingAndRunSmallerGraphsAfterwards) {
  SimulatedDeviceOptions small;
  small.total_bytes = 2048;
  build(small, {});
  ASSERT_TRUE(scheduler->prepare(graph).ok());
  Graph large;
  Tensor* y = large.new_input("y", DType::f32, {2, 500, 1, 1});
  large.mark_output(ops::mul_mat(large, &w0, y));
  const Status status = scheduler->prepare(large);
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(status.message(), HasSubstr("chunk 0 needs 8.0 KiB, 0 B of SIM0 memory memory"));
  EXPECT_THAT(status.message(), HasSubstr("SIM0 needs 8.0 KiB, has 1.8 KiB free of 2.0 KiB"));
  ASSERT_TRUE(scheduler->prepare(graph).ok());
  ASSERT_TRUE(scheduler->set_input(*x, bytes_of({1, 3})).ok());
  ASSERT_TRUE(scheduler->compute(graph).ok());
  EXPECT_EQ(read_floats(*scheduler, *out), (std::vector<float>{4, 12}));
}

TEST_F(TwoDevices, CheckSizesAndOrderOfUse) {
  build();
  Status status = scheduler->set_input(*x, bytes_of({1, 2}));
  EXPECT_EQ(status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(status.message(),
              HasSubstr("input x F32 {2} is written before its graph is prepared"));
  ASSERT_TRUE(scheduler->prepare(graph).ok());
  status = scheduler->set_input(*x, bytes_of({1, 2, 3}));
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("x F32 {2} takes 8 bytes, given 12"));
}

TEST_F(TwoDevices, AnErrorOfTheWorkComesOutAndTheNextRunIsFine) {
  build();
  Tensor table = make_weight("table", {2, 2, 1, 1});
  set->place(table, 1);
  ASSERT_TRUE(table.buffer->write(table, 0, bytes_of({1, 2, 3, 4})).ok());
  Graph lookup;
  Tensor* ids = lookup.new_input("ids", DType::i32, {1, 1, 1, 1});
  Tensor* rows = ops::get_rows(lookup, &table, ids);
  lookup.mark_output(rows);
  for (const int32_t id : {1, 7, 0}) {
    ASSERT_TRUE(scheduler->prepare(lookup).ok());
    ASSERT_TRUE(scheduler->set_input(*ids, std::as_bytes(std::span(&id, 1))).ok());
    const Status status = scheduler->compute(lookup);
    if (id == 7) {
      EXPECT_EQ(status.code(), StatusCode::out_of_range);
      EXPECT_THAT(status.message(), HasSubstr("SIM1: get_rows F32 {2}: row 7 is outside [0, 2)"));
    } else {
      ASSERT_TRUE(status.ok()) << status.to_string();
      EXPECT_EQ(read_floats(*scheduler, *rows)[0], id == 1 ? 3.0f : 1.0f);
    }
  }
}

TEST(Scheduler, TakesHundredsOfInputsInOneSplit) {
  for (const int count : {40, 100, 300}) {
    SimulatedSet set(plain_devices(2));
    Tensor weight = make_weight("w", {4, 1, 1, 1});
    Tensor bias = make_weight("b", {4, 1, 1, 1});
    set.place(weight, 0);
    set.place(bias, 1);
    ASSERT_TRUE(weight.buffer->write(weight, 0, bytes_of({1, 1, 1, 1})).ok());
    ASSERT_TRUE(bias.buffer->write(bias, 0, bytes_of({0, 0, 0, 0})).ok());
    Graph graph;
    std::vector<Tensor*> terms;
    Tensor* x = graph.new_input("x", DType::f32, {4, 1, 1, 1});
    for (int i = 0; i < count; ++i) terms.push_back(x = ops::add(graph, x, &weight));
    Tensor* total = ops::sum(graph, terms);
    Tensor* out = ops::add(graph, total, &bias);
    graph.mark_output(out);
    const auto scheduler = set.scheduler();
    scheduler->pin(*total, 1);
    ASSERT_TRUE(scheduler->prepare(graph).ok());
    Tensor* input = graph.inputs()[0];
    ASSERT_TRUE(scheduler->set_input(*input, bytes_of({0, 0, 0, 0})).ok());
    ASSERT_TRUE(scheduler->compute(graph).ok());
    const float expected = static_cast<float>(count * (count + 1) / 2);
    EXPECT_EQ(read_floats(*scheduler, *out), std::vector<float>(4, expected));
    EXPECT_EQ(set.device(1).counters().direct_copies, static_cast<uint64_t>(count));
  }
}

TEST(Scheduler, AGraphMayReadAnothersOutput) {
  SimulatedSet set(plain_devices(2));
  Tensor w0 = make_weight("w0", {4, 1, 1, 1}), w1 = make_weight("w1", {4, 1, 1, 1});
  set.place(w0, 0);
  set.place(w1, 1);
  for (Tensor* weight : {&w0, &w1}) {
    ASSERT_TRUE(weight->buffer->write(*weight, 0, bytes_of({1, 1, 1, 1})).ok());
  }
  const auto scheduler = set.scheduler();
  Graph first;
  Tensor* x = first.new_input("x", DType::f32, {4, 1, 1, 1});
  Tensor* kept = ops::add(first, x, &w0);
  first.mark_output(kept);
  ASSERT_TRUE(scheduler->prepare(first).ok());
  ASSERT_TRUE(scheduler->set_input(*x, bytes_of({1, 2, 3, 4})).ok());
  ASSERT_TRUE(scheduler->compute(first).ok());
  for (int size = 1; size < 30; ++size) {
    SCOPED_TRACE(size);
    Graph second;
    std::vector<Tensor*> terms;
    for (int i = 0; i < size; ++i) terms.push_back(ops::add(second, kept, i % 2 == 0 ? &w0 : &w1));
    Tensor* out = ops::sum(second, terms);
    second.mark_output(out);
    const Status status = scheduler->compute(second);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(read_floats(*scheduler, *out)[1], static_cast<float>(4 * size));
    EXPECT_EQ(read_floats(*scheduler, *kept)[1], 3.0f);
  }
}

TEST(Scheduler, ADeadGraphsPlanIsNotMistakenForANewGraphs) {
  SimulatedSet set(plain_devices(1));
  Tensor w = make_weight("w", {4, 1, 1, 1});
  set.place(w, 0);
  ASSERT_TRUE(w.buffer->write(w, 0, bytes_of({1, 1, 1, 1})).ok());
  const auto scheduler = set.scheduler();
  for (int i = 0; i < 20; ++i) {
    // The same storage for every graph, so that addresses repeat.
    std::optional<Graph> graph;
    graph.emplace();
    Tensor* x = graph->new_input("x", DType::f32, {4, 1, 1, 1});
    Tensor* y = i % 2 == 0 ? ops::add(*graph, x, &w) : ops::scale(*graph, x, 10);
    graph->mark_output(y);
    ASSERT_TRUE(scheduler->prepare(*graph).ok());
    ASSERT_TRUE(scheduler->set_input(*x, bytes_of({1, 1, 1, 1})).ok());
    ASSERT_TRUE(scheduler->compute(*graph).ok());
    EXPECT_EQ(read_floats(*scheduler, *y)[0], i % 2 == 0 ? 2.0f : 10.0f);
  }
}

TEST(Scheduler, AGraphWithoutNodesRuns) {
  SimulatedSet set(plain_devices(2));
  const auto scheduler = set.scheduler();
  Graph graph;
  EXPECT_TRUE(scheduler->compute(graph).ok());
  Graph only_input;
  Tensor* x = only_input.new_input("x", DType::f32, {2, 1, 1, 1});
  only_input.mark_output(x);
  ASSERT_TRUE(scheduler->prepare(only_input).ok());
  ASSERT_TRUE(scheduler->set_input(*x, bytes_of({5, 6})).ok());
  ASSERT_TRUE(scheduler->compute(only_input).ok());
  EXPECT_EQ(read_floats(*scheduler, *x), (std::vector<float>{5, 6}));
}

TEST(Scheduler, RefusesImpossibleOptions) {
  EXPECT_EQ(Scheduler::create({}).status().code(), StatusCode::invalid_argument);
  SimulatedDevice device({});
  for (const int n_copies : {0, -1, 5}) {
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(device.create_backend({}).value());
    const Status status = Scheduler::create(std::move(backends), {n_copies}).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("1 to 4 are possible"));
  }
}

// Notes what it is given; computes nothing.
class NotingBackend final : public Backend {
 public:
  explicit NotingBackend(const Device& device) : device_(device) {}
  const Device& device() const override { return device_; }
  Status compute(const GraphView& graph) override {
    uids.push_back(graph.uid);
    first_node = graph.nodes.empty() ? nullptr : graph.nodes[0];
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

  void forget(uint64_t uid) override { forgotten.push_back(uid); }

  std::vector<uint64_t> uids;
  std::vector<uint64_t> forgotten;
  const Tensor* first_node = nullptr;

 private:
  const Device& device_;
};

TEST(Scheduler, KeepsTheNumberOfAPlanUntilItsMemoryMoves) {
  SimulatedDeviceOptions options;
  options.host_memory = true;
  SimulatedDevice device(options);
  auto owned = std::make_unique<NotingBackend>(device);
  NotingBackend& backend = *owned;
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::move(owned));
  const auto scheduler = Scheduler::create(std::move(backends)).value();
  Graph small, large;
  Tensor* x = small.new_input("x", DType::f32, {16, 1, 1, 1});
  Tensor* y = large.new_input("y", DType::f32, {4096, 1, 1, 1});
  small.mark_output(ops::scale(small, x, 2));
  large.mark_output(ops::scale(large, y, 2));
  for (Graph* graph : {&small, &small, &large, &small, &large, &small}) {
    ASSERT_TRUE(scheduler->compute(*graph).ok());
    EXPECT_EQ(backend.first_node, graph->nodes()[0]);  // the graph's own nodes, no stand-ins
  }
  const std::vector<uint64_t>& uids = backend.uids;
  EXPECT_EQ(uids[0], uids[1]);
  EXPECT_NE(uids[1], uids[3]);  // the large one moved the memory
  EXPECT_EQ(uids[2], uids[4]);
  EXPECT_EQ(uids[3], uids[5]);
  for (const uint64_t uid : uids) EXPECT_NE(uid, 0u);
  EXPECT_EQ(backend.forgotten, std::vector{uids[0]});  // no graph has it any more
}

// What backends keep is of graphs that live: of a dead one it goes when the next graph is planned,
// of all at a reset.
TEST(Scheduler, BackendsForgetThePartsOfDeadGraphs) {
  SimulatedDeviceOptions options;
  options.host_memory = true;
  SimulatedDevice device(options);
  auto owned = std::make_unique<NotingBackend>(device);
  NotingBackend& backend = *owned;
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(std::move(owned));
  const auto scheduler = Scheduler::create(std::move(backends)).value();
  std::vector<std::unique_ptr<Graph>> graphs;
  const auto add = [&] {
    Graph& graph = *graphs.emplace_back(std::make_unique<Graph>());
    graph.mark_output(ops::scale(graph, graph.new_input("x", DType::f32, {16, 1, 1, 1}), 2));
    EXPECT_TRUE(scheduler->compute(graph).ok());
  };
  for (int i = 0; i < 3; ++i) add();
  EXPECT_TRUE(backend.forgotten.empty());
  graphs.erase(graphs.begin(), graphs.begin() + 2);
  add();
  EXPECT_THAT(backend.forgotten, ::testing::UnorderedElementsAre(backend.uids[0], backend.uids[1]));
  ASSERT_TRUE(scheduler->reset().ok());
  EXPECT_THAT(backend.forgotten, ::testing::UnorderedElementsAreArray(backend.uids));
}

}  // namespace
}  // namespace strata
