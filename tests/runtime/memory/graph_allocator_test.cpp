// GraphAllocator: random graphs against a plain allocator, then each rule and each reported fault
// of such allocators by itself. Memory is poisoned before every run.
#include "runtime/memory/graph_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/memory/linear_allocator.h"
#include "tests/support/random_graph.h"
#include "tests/support/reference_ops.h"

namespace strata {
namespace {

using ::strata::testing::output_bytes;
using ::strata::testing::place_one_by_one;
using ::strata::testing::place_weights;
using ::strata::testing::plain_address;
using ::strata::testing::RandomGraph;
using ::strata::testing::RandomGraphOptions;
using ::strata::testing::run_on_host;
using ::strata::testing::run_reference;
using ::testing::HasSubstr;

// Host memory that counts, with small buffers and a budget.
class LimitedType final : public BufferType {
 public:
  explicit LimitedType(uint64_t max_size, uint64_t budget = UINT64_MAX)
      : max_size_(max_size), budget_(budget) {}
  std::string_view name() const override { return "limited"; }
  uint64_t alignment() const override { return 64; }
  uint64_t max_size() const override { return max_size_; }
  bool is_host() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const override {
    if (size > budget_) {
      return resource_exhausted("needs " + std::to_string(size) + ", has " +
                                std::to_string(budget_));
    }
    return host_buffer_type().allocate(size);
  }

 private:
  uint64_t max_size_;
  uint64_t budget_;
};

void poison(GraphAllocator& allocator) {
  for (Buffer* buffer : allocator.buffers(0)) buffer->fill(std::byte{0xff});
}

std::vector<std::vector<std::byte>> expected_outputs(const RandomGraphOptions& options) {
  RandomGraph plain(options);
  const auto weights = place_weights(plain, host_buffer_type());
  const auto buffers = place_one_by_one(plain.graph(), std::byte{0x7f});
  run_on_host(plain);
  return output_bytes(plain.graph());
}

TEST(GraphAllocator, GivesThePlainAllocatorsResults) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomGraphOptions options = {.seed = seed,
                                        .node_count = 10 + static_cast<int>(seed % 60)};
    RandomGraph random(options);
    const auto weights = place_weights(random, host_buffer_type());
    GraphAllocator allocator({&host_buffer_type()});
    ASSERT_TRUE(allocator.allocate(random.graph()).ok());
    poison(allocator);
    run_on_host(random);
    ASSERT_EQ(output_bytes(random.graph()), expected_outputs(options));
  }
}

TEST(GraphAllocator, GivesTheSameInSeveralChunks) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const RandomGraphOptions options = {.seed = seed, .node_count = 50};
    RandomGraph random(options);
    const auto weights = place_weights(random, host_buffer_type());
    const LimitedType type(512);
    GraphAllocator allocator({&type});
    ASSERT_TRUE(allocator.allocate(random.graph()).ok());
    EXPECT_GT(allocator.buffers(0).size(), 1u);
    poison(allocator);
    run_on_host(random);
    ASSERT_EQ(output_bytes(random.graph()), expected_outputs(options));
  }
}

TEST(GraphAllocator, ReservedForTheLargestItServesSmallerOnesWithoutGrowing) {
  const auto host = &host_buffer_type();
  GraphAllocator allocator({host});
  RandomGraph largest({.seed = 7, .node_count = 80, .n_tokens = 9});
  const auto largest_weights = place_weights(largest, *host);
  ASSERT_TRUE(allocator.reserve(largest.graph()).ok());
  const uint64_t generation = allocator.generation();
  for (int64_t n_tokens : {9, 1, 5, 2, 9}) {
    const RandomGraphOptions options = {.seed = 7, .node_count = 80, .n_tokens = n_tokens};
    RandomGraph random(options);
    const auto weights = place_weights(random, *host);
    ASSERT_TRUE(allocator.allocate(random.graph()).ok());
    EXPECT_EQ(allocator.generation(), generation);
    poison(allocator);
    run_on_host(random);
    ASSERT_EQ(output_bytes(random.graph()), expected_outputs(options)) << n_tokens;
  }
}

// A chain and its memory: the rules one by one.
class Chain : public ::testing::Test {
 protected:
  Tensor* input(std::string name) { return graph.new_input(std::move(name), DType::f32, shape); }
  // Takes x's place only if the allocator frees it: the op cannot work in place.
  Tensor* copy(Tensor* x) { return ops::contiguous(graph, x); }
  void allocate() { ASSERT_TRUE(allocator.allocate(graph).ok()); }

  static constexpr uint64_t kUnit = 256;
  const Dims shape = {kUnit / 4, 1, 1, 1};
  Graph graph;
  GraphAllocator allocator{{&host_buffer_type()}};
};

TEST_F(Chain, FreesAtLastUse) {
  Tensor* x = input("x");
  for (int i = 0; i < 10; ++i) x = copy(x);
  graph.mark_output(x);
  allocate();
  EXPECT_EQ(allocator.held_bytes(), 3 * kUnit);  // the input, and two that alternate
}

TEST_F(Chain, WorksInPlaceForTheSoleUser) {
  Tensor* x = copy(input("x"));
  Tensor* y = ops::scale(graph, x, 2);
  Tensor* z = ops::add(graph, y, x->sources[0]);
  graph.mark_output(z);
  allocate();
  EXPECT_EQ(y->data, x->data);
  EXPECT_EQ(z->data, x->data);
  EXPECT_EQ(allocator.held_bytes(), 2 * kUnit);
}

TEST_F(Chain, NeverWorksInPlaceOnInputsOutputsOrSharedSources) {
  Tensor* x = input("x");
  Tensor* over_input = ops::scale(graph, x, 2);
  Tensor* kept = copy(x);
  graph.mark_output(kept);
  Tensor* over_output = ops::scale(graph, kept, 2);
  Tensor* shared = copy(x);
  Tensor* over_shared = ops::scale(graph, shared, 2);
  Tensor* twice = ops::add(graph, shared, shared);
  graph.mark_output(ops::sum(graph, {over_input, over_output, over_shared, twice}));
  allocate();
  EXPECT_NE(over_input->data, x->data);
  EXPECT_NE(over_output->data, kept->data);
  EXPECT_NE(over_shared->data, shared->data);
  EXPECT_NE(twice->data, shared->data);
}

TEST_F(Chain, WorksInPlaceThroughTheLastView) {
  Tensor* x = copy(input("x"));
  Tensor* half = ops::slice(graph, x, 0, 32, 32);
  Tensor* scaled = ops::scale(graph, half, 3);
  graph.mark_output(copy(scaled));
  allocate();
  EXPECT_EQ(scaled->data, x->data + 128);
  EXPECT_TRUE(scaled->view_source == nullptr);
}

TEST_F(Chain, KeepsASourceWhileAnyViewOfItIsRead) {
  Tensor* x = copy(input("x"));
  Tensor* early = ops::reshape(graph, x, {32, 2, 1, 1});
  Tensor* late = ops::reshape(graph, early, {16, 4, 1, 1});
  Tensor* a = ops::scale(graph, early, 2);
  Tensor* b = copy(a);
  Tensor* c = copy(b);
  graph.mark_output(copy(late));
  graph.mark_output(c);
  allocate();
  for (const Tensor* other : {a, b, c}) EXPECT_NE(other->data, x->data);
  EXPECT_EQ(late->data, x->data);
}

TEST_F(Chain, AViewMarkedAsOutputKeepsItsSource) {
  Tensor* x = copy(input("x"));
  Tensor* view = ops::reshape(graph, x, {32, 2, 1, 1});
  graph.mark_output(view);
  Tensor* y = ops::scale(graph, x, 2);
  graph.mark_output(copy(copy(y)));
  allocate();
  EXPECT_NE(y->data, x->data);
  EXPECT_EQ(view->data, x->data);
}

TEST_F(Chain, NodesThatNobodyReadsGiveTheirMemoryBack) {
  Tensor* x = input("x");
  for (int i = 0; i < 10; ++i) copy(x);
  allocate();
  EXPECT_EQ(allocator.held_bytes(), 2 * kUnit);
}

TEST_F(Chain, ALeafMayBeAnOutputToo) {
  Tensor* x = input("x");
  graph.mark_output(x);
  Tensor* y = ops::scale(graph, x, 2);
  graph.mark_output(y);
  allocate();
  EXPECT_NE(x->data, y->data);
}

TEST_F(Chain, AGraphWithoutNodesIsFine) {
  allocate();
  EXPECT_EQ(allocator.held_bytes(), 0u);
  Tensor* x = input("x");
  allocate();
  EXPECT_NE(x->data, nullptr);
}

TEST_F(Chain, ViewsOfViewsOfAPlacedLeafAreLeftAlone) {
  Tensor weight;
  weight.name = "w";
  weight.ne = {64, 4, 1, 1};
  weight.nb = dense_strides(DType::f32, weight.ne).value();
  LinearAllocator linear(host_buffer_type());
  linear.add(weight);
  const auto buffers = linear.allocate(BufferUsage::weights).value();
  Tensor* rows = ops::slice(graph, &weight, 1, 1, 2);
  Tensor* row = ops::slice(graph, rows, 1, 1, 1);
  Tensor* y = ops::scale(graph, row, 2);
  graph.mark_output(y);
  allocate();
  EXPECT_EQ(row->data, weight.data + 2 * kUnit);
  EXPECT_EQ(y->buffer, allocator.buffers(0)[0]);
}

TEST_F(Chain, ALeafWithoutMemoryIsNamed) {
  Tensor weight;
  weight.name = "blk.0.attn_norm.weight";
  weight.ne = shape;
  weight.nb = dense_strides(DType::f32, shape).value();
  ops::add(graph, input("x"), &weight);
  const Status status = allocator.allocate(graph);
  EXPECT_EQ(status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("blk.0.attn_norm.weight F32 {64} has no memory"));
  // Measuring goes without.
  const auto plan =
      allocator.plan(allocation_request(graph), UnplacedLeaves::counted_as_placed).value();
  EXPECT_EQ(plan.total_bytes(), 2 * kUnit);
}

TEST_F(Chain, SaysNeedAndHaveWhenMemoryRunsOut) {
  const LimitedType type(1 << 20, 2 * kUnit);
  GraphAllocator small({&type});
  Tensor* x = input("x");
  for (int i = 0; i < 3; ++i) x = copy(x);
  graph.mark_output(x);
  const Status status = small.allocate(graph);
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_THAT(status.message(), HasSubstr("chunk 0 needs 768 B, 0 B of limited memory are held"));
  EXPECT_THAT(status.message(), HasSubstr("needs 768, has 512"));
  // A smaller one still runs.
  Graph other;
  other.mark_output(ops::scale(other, other.new_input("y", DType::f32, shape), 2));
  EXPECT_TRUE(small.allocate(other).ok());
}

// Two graphs with equal lists of ops and shapes: in one, step 3 reads step 1, in the other step 2,
// so that other results are alive at the same time.
struct Twin {
  explicit Twin(bool swapped) {
    Tensor* x = graph.new_input("x", DType::f32, {64, 1, 1, 1});
    Tensor* a = ops::contiguous(graph, x);
    Tensor* b = ops::contiguous(graph, a);
    Tensor* c = ops::contiguous(graph, swapped ? a : b);
    Tensor* d = ops::contiguous(graph, c);
    out = ops::sum(graph, {d, swapped ? b : a, ops::scale(graph, swapped ? a : b, 3)});
    graph.mark_output(out);
  }
  Graph graph;
  Tensor* out;
};

TEST(GraphAllocator, TellsGraphsOfEqualShapesApart) {
  GraphAllocator allocator({&host_buffer_type()});
  Twin straight(false), swapped(true);
  for (int i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    Twin& twin = i % 2 == 0 ? straight : swapped;
    ASSERT_TRUE(allocator.allocate(twin.graph).ok());
    poison(allocator);
    const float value = static_cast<float>(i);
    float* x = reinterpret_cast<float*>(twin.graph.inputs()[0]->data);
    for (int j = 0; j < 64; ++j) x[j] = value;
    for (Tensor* node : twin.graph.nodes()) ASSERT_TRUE(run_reference(*node, plain_address).ok());
    ASSERT_EQ(reinterpret_cast<float*>(twin.out->data)[5], 5 * value);
  }
  EXPECT_EQ(allocator.replan_count(), 100u);
}

TEST(GraphAllocator, KeepsThePlanForTheSameStructure) {
  GraphAllocator allocator({&host_buffer_type()});
  for (int i = 0; i < 10; ++i) {
    Twin twin(false);
    ASSERT_TRUE(allocator.allocate(twin.graph).ok());
  }
  EXPECT_EQ(allocator.replan_count(), 1u);
}

TEST(GraphAllocator, AnotherGraphsOutputIsNotOverwrittenByTheOneThatReadsIt) {
  GraphAllocator allocator({&host_buffer_type()});
  Graph first;
  Tensor* x = first.new_input("x", DType::f32, {64, 1, 1, 1});
  Tensor* kept = ops::scale(first, ops::contiguous(first, x), 2);
  first.mark_output(kept);
  ASSERT_TRUE(allocator.allocate(first).ok());
  for (int j = 0; j < 64; ++j) reinterpret_cast<float*>(x->data)[j] = 21;
  for (Tensor* node : first.nodes()) ASSERT_TRUE(run_reference(*node, plain_address).ok());
  for (int size = 1; size <= 40; ++size) {
    SCOPED_TRACE(size);
    Graph second;
    std::vector<Tensor*> terms = {kept};
    for (int i = 0; i < size; ++i) terms.push_back(ops::contiguous(second, kept));
    Tensor* out = ops::sum(second, terms);
    second.mark_output(out);
    ASSERT_TRUE(allocator.allocate(second).ok());
    for (Tensor* node : second.nodes()) ASSERT_TRUE(run_reference(*node, plain_address).ok());
    ASSERT_EQ(reinterpret_cast<float*>(out->data)[0], 42.0f * static_cast<float>(size + 1));
    ASSERT_EQ(reinterpret_cast<float*>(kept->data)[63], 42.0f);
  }
}

TEST(GraphAllocator, EqualTypesShareAPoolAndOthersDoNot) {
  const LimitedType other(1 << 20);
  GraphAllocator allocator({&host_buffer_type(), &other, &host_buffer_type()});
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, {64, 1, 1, 1});
  AllocationRequest request;
  request.inputs.push_back({x, 0});
  std::vector<Tensor*> nodes;
  for (int i = 0; i < 3; ++i) {
    x = ops::contiguous(graph, x);
    nodes.push_back(x);
    request.steps.push_back({x, x->sources, i});
  }
  const AllocationPlan plan = allocator.plan(request).value();
  ASSERT_TRUE(allocator.grow(plan).ok());
  allocator.place(plan, request);
  EXPECT_EQ(nodes[0]->buffer, nodes[2]->buffer);
  EXPECT_NE(nodes[0]->buffer, nodes[1]->buffer);
  EXPECT_EQ(nodes[2]->data, nodes[0]->data);  // free again after step 1 read it
  EXPECT_EQ(allocator.held_bytes(0), 512u);
  EXPECT_EQ(allocator.held_bytes(1), 256u);
  EXPECT_EQ(allocator.held_bytes(2), 0u);
  EXPECT_EQ(allocator.index_of(nodes[1]->buffer), 1);
}

}  // namespace
}  // namespace strata
