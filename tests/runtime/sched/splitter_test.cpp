// Splitter: where it cuts, what it copies and how often.
#include "runtime/sched/splitter.h"

#include <gtest/gtest.h>

#include "runtime/graph/ops.h"
#include "tests/runtime/sched/simulated_set.h"

namespace strata {
namespace {

using testing::make_weight;
using testing::plain_devices;
using testing::SimulatedDeviceOptions;
using testing::SimulatedSet;

const Dims kMatrix = {4, 4, 1, 1};

// Every node pinned by hand.
SplitPlan split(const Graph& graph, const SimulatedSet& set, std::vector<int> nodes,
                std::vector<int> inputs, int n_copies = 1) {
  return split_graph(graph, {std::move(nodes), std::move(inputs)}, set.list(), n_copies);
}

TEST(Splitter, KeepsOneBackendsNodesAsTheyAre) {
  SimulatedSet set(plain_devices(1));
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kMatrix);
  ops::scale(graph, ops::transpose(graph, x), 2);
  const SplitPlan plan = split(graph, set, {0, 0}, {0});
  ASSERT_EQ(plan.splits.size(), 1u);
  EXPECT_TRUE(plan.splits[0].inputs.empty());
  EXPECT_TRUE(plan.arena.empty());
  EXPECT_TRUE(std::equal(graph.nodes().begin(), graph.nodes().end(),
                         plan.splits[0].nodes[0].begin(), plan.splits[0].nodes[0].end()));
}

TEST(Splitter, CopiesATensorOncePerBackend) {
  SimulatedSet set(plain_devices(2));
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kMatrix);
  Tensor* a = ops::scale(graph, x, 2);  // 0
  Tensor* b = ops::scale(graph, a, 3);  // 1, reads a
  Tensor* c = ops::scale(graph, b, 4);  // 0
  ops::add(graph, a, c);                // 1, reads a again, and c
  const SplitPlan plan = split(graph, set, {0, 1, 0, 1}, {0});
  ASSERT_EQ(plan.splits.size(), 4u);
  ASSERT_EQ(plan.splits[1].inputs.size(), 1u);
  EXPECT_EQ(plan.splits[1].inputs[0].source, a);
  EXPECT_EQ(plan.splits[1].inputs[0].from, 0);
  ASSERT_EQ(plan.splits[3].inputs.size(), 1u);
  EXPECT_EQ(plan.splits[3].inputs[0].source, c);
  EXPECT_EQ(plan.splits[3].nodes[0][0]->sources[0], plan.splits[1].nodes[0][0]->sources[0]);
}

TEST(Splitter, NeverChangesTheGraph) {
  SimulatedSet set(plain_devices(2));
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kMatrix);
  Tensor* a = ops::scale(graph, x, 2);
  Tensor* b = ops::scale(graph, a, 3);
  const SplitPlan plan = split(graph, set, {0, 1}, {0}, 3);
  EXPECT_EQ(b->sources[0], a);
  ASSERT_EQ(plan.splits[1].nodes.size(), 3u);
  EXPECT_NE(plan.splits[1].nodes[0][0], b);
  EXPECT_NE(plan.splits[1].nodes[0][0], plan.splits[1].nodes[1][0]);
  EXPECT_NE(plan.splits[1].nodes[0][0]->sources[0], plan.splits[1].nodes[1][0]->sources[0]);
}

TEST(Splitter, CopiesDenseViewsAloneAndOthersWithTheirSource) {
  SimulatedSet set(plain_devices(2));
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kMatrix);
  Tensor* a = ops::scale(graph, x, 2);
  Tensor* rows = ops::slice(graph, a, 1, 1, 2);
  Tensor* turned = ops::transpose(graph, a);
  ops::scale(graph, rows, 3);
  ops::contiguous(graph, turned);
  const SplitPlan plan = split(graph, set, {0, 0, 0, 1, 1}, {0});
  ASSERT_EQ(plan.splits.size(), 2u);
  ASSERT_EQ(plan.splits[1].inputs.size(), 2u);
  EXPECT_EQ(plan.splits[1].inputs[0].source, rows);
  EXPECT_EQ(plan.splits[1].inputs[0].copies[0]->size_bytes(), 32u);
  EXPECT_EQ(plan.splits[1].inputs[1].source, a);
  const Tensor* view = plan.splits[1].nodes[0][1]->sources[0];
  EXPECT_EQ(view->view_source, plan.splits[1].inputs[1].copies[0]);
  EXPECT_EQ(view->nb, turned->nb);
}

TEST(Splitter, CutsBeforeEachFurtherCopiedWeight) {
  SimulatedSet set(plain_devices(2));
  Tensor w0 = make_weight("w0", kMatrix), w1 = make_weight("w1", kMatrix);
  set.place(w0, 1);
  set.place(w1, 1);
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kMatrix);
  Tensor* a = ops::mul_mat(graph, &w0, x);
  Tensor* b = ops::mul_mat(graph, &w0, a);
  ops::mul_mat(graph, &w1, b);
  const SplitPlan plan = split(graph, set, {0, 0, 0}, {0}, 2);
  ASSERT_EQ(plan.splits.size(), 2u);
  EXPECT_EQ(plan.splits[0].node_indices.size(), 2u);
  EXPECT_EQ(plan.splits[0].inputs[0].copies.size(), 1u);  // weights never twice
  EXPECT_FALSE(plan.splits[0].inputs[0].persistent);
}

TEST(Splitter, StartsWithTheFirstNodeThatWorks) {
  SimulatedSet set(plain_devices(2));
  Tensor w = make_weight("w", kMatrix);
  set.place(w, 1);
  Graph graph;
  Tensor* rows = ops::slice(graph, &w, 1, 0, 1);
  Tensor* x = graph.new_input("x", DType::f32, {4, 1, 1, 1});
  ops::add(graph, x, rows);
  const SplitPlan plan = split(graph, set, {1, 0}, {0});
  ASSERT_EQ(plan.splits.size(), 1u);
  EXPECT_EQ(plan.splits[0].backend, 0);
  EXPECT_EQ(plan.splits[0].node_indices, (std::vector<size_t>{0, 1}));
}

}  // namespace
}  // namespace strata
