// Assignment: each pass by itself, on graphs small enough to see the answer.
#include "runtime/sched/assignment.h"

#include <gtest/gtest.h>

#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"
#include "tests/runtime/sched/simulated_set.h"

namespace strata {
namespace {

using testing::make_weight;
using testing::plain_devices;
using testing::SimulatedDeviceOptions;
using testing::SimulatedSet;

using Ints = std::vector<int>;

const Dims kVector = {4, 1, 1, 1};
const Dims kWeight = {4, 4, 1, 1};

TEST(Assignment, FollowsTheWeightsAndFillsBetweenThem) {
  SimulatedSet set(plain_devices(3));
  Tensor w0 = make_weight("w0", kWeight), w2 = make_weight("w2", kWeight);
  set.place(w0, 0);
  set.place(w2, 2);
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kVector);
  Tensor* a = ops::scale(graph, x, 2);
  Tensor* b = ops::mul_mat(graph, &w0, a);
  Tensor* c = ops::scale(graph, b, 2);
  Tensor* view = ops::reshape(graph, c, {2, 2, 1, 1});
  Tensor* d = ops::mul_mat(graph, &w2, ops::reshape(graph, view, kVector));
  ops::scale(graph, d, 2);
  const Assignment assignment = assign_backends(graph, set.list(), {}).value();
  EXPECT_EQ(assignment.nodes, (Ints{0, 0, 0, 0, 0, 2, 2}));
  EXPECT_EQ(assignment.inputs, Ints{0});
}

TEST(Assignment, KeepsWritesWhereTheCacheIs) {
  SimulatedSet set(plain_devices(2));
  Tensor k_cache = make_weight("k", {64, 2, 1, 1}), v_cache = make_weight("v", {64, 2, 1, 1});
  Tensor w0 = make_weight("w0", kWeight);
  set.place_cache(k_cache, 1);
  set.place_cache(v_cache, 1);
  set.place(w0, 0);
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kVector);
  Tensor* k = ops::reshape(graph, ops::mul_mat(graph, &w0, x), {4, 1, 1, 1});
  Tensor* cells = graph.new_input("cells", DType::i32, {1, 1, 1, 1});
  Tensor* written = ops::kv_write(graph, k, k, &k_cache, &v_cache, cells);
  const NodePin pin = {written, 0};  // of no avail
  const Assignment assignment = assign_backends(graph, set.list(), {&pin, 1}).value();
  EXPECT_EQ(assignment.nodes, (Ints{0, 0, 1}));
  EXPECT_EQ(assignment.inputs, (Ints{0, 1}));
}

TEST(Assignment, LeavesWhatADeviceRefusesToTheNextThatReadsMost) {
  SimulatedDeviceOptions refusing;
  refusing.refused = {Op::soft_cap};
  SimulatedSet set({refusing, refusing, {}});
  Tensor w0 = make_weight("w0", kWeight);
  set.place(w0, 0);
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kVector);
  Tensor* a = ops::mul_mat(graph, &w0, x);
  Tensor* b = ops::soft_cap(graph, a, 1);
  Tensor* c = ops::scale(graph, b, 2);
  ops::mul_mat(graph, &w0, c);
  EXPECT_EQ(assign_backends(graph, set.list(), {}).value().nodes, (Ints{0, 2, 0, 0}));
}

TEST(Assignment, CopiesHostWeightsToADeviceThatWantsTheNode) {
  SimulatedDeviceOptions wanting, host;
  wanting.wanted = {Op::mul_mat};
  host.host_memory = true;
  SimulatedSet set({wanting, host});
  Tensor w = make_weight("w", kWeight), norm = make_weight("norm", kVector);
  set.place(w, 1);
  set.place(norm, 1);
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kVector);
  ops::mul_mat(graph, &w, ops::rms_norm(graph, x, &norm, 1e-5f));
  EXPECT_EQ(assign_backends(graph, set.list(), {}).value().nodes, (Ints{1, 0}));
}

TEST(Assignment, PinsWinOverWeights) {
  SimulatedDeviceOptions refusing;
  refusing.refused = {Op::scale};
  SimulatedSet set({refusing, {}});
  Tensor w = make_weight("w", kWeight);
  set.place(w, 0);
  Graph graph;
  Tensor* x = graph.new_input("x", DType::f32, kVector);
  Tensor* product = ops::mul_mat(graph, &w, x);
  Tensor* scaled = ops::scale(graph, product, 2);
  NodePin pin = {product, 1};
  EXPECT_EQ(assign_backends(graph, set.list(), {&pin, 1}).value().nodes, (Ints{1, 1}));
  pin = {scaled, 0};
  const Status status = assign_backends(graph, set.list(), {&pin, 1}).status();
  EXPECT_EQ(status.code(), StatusCode::unimplemented);
  EXPECT_EQ(status.message(), "node scale F32 {4} (scale) is pinned to SIM0, which cannot run it");
}

TEST(Assignment, PutsAnUnreadInputOnTheFallback) {
  SimulatedSet set(plain_devices(2));
  Graph graph;
  graph.new_input("x", DType::f32, kVector);
  EXPECT_EQ(assign_backends(graph, set.list(), {}).value().inputs, Ints{1});
}

}  // namespace
}  // namespace strata
