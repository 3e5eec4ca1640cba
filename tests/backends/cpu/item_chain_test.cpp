// Steps joined to a chain give the bits of steps run one by one: random graphs in memory that is
// reused as the allocator sees fit, run whole and node by node. Then each rule of joining: with
// described accesses, with tensors laid over each other by hand, and by the steps that are left of
// a layer.
#include "backends/cpu/item_chain.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cpu/matmul.h"
#include "backends/cpu/plan.h"
#include "runtime/memory/graph_allocator.h"
#include "tests/backends/cpu/backend_support.h"
#include "tests/backends/cpu/matmul_support.h"
#include "tests/support/random_graph.h"

namespace strata::cpu {
namespace {

using testing::RandomGraph;

struct Computed {
  std::vector<std::vector<std::byte>> outputs;
  size_t steps = 0;
};

// Computes the graph in reused memory, all nodes at once or each on its own.
Computed compute(const testing::RandomGraphOptions& options, Backend& backend, int threads,
                 bool whole) {
  RandomGraph random(options);
  const auto weights = testing::place_weights(random, host_buffer_type());
  GraphAllocator allocator({&host_buffer_type()});
  EXPECT_TRUE(allocator.allocate(random.graph()).ok());
  for (Buffer* buffer : allocator.buffers(0)) buffer->fill(std::byte{0xff});
  testing::write_leaves(random);
  Computed result;
  const std::span<Tensor* const> nodes = random.graph().nodes();
  const size_t at_once = whole ? nodes.size() : 1;
  for (size_t i = 0; i < nodes.size(); i += at_once) {
    const GraphView view = {nodes.subspan(i, at_once), 0};
    const Status status = backend.compute(view);
    EXPECT_TRUE(status.ok()) << status.to_string();
    result.steps += Plan::compile(view, threads).value()->step_count();
  }
  result.outputs = testing::output_bytes(random.graph());
  return result;
}

TEST(ItemChain, GivesTheBitsOfStepsRunOneByOne) {
  size_t steps_alone = 0;
  size_t steps_joined = 0;
  for (const int threads : {1, 3}) {
    CpuUnderTest cpu = make_cpu(detect_isa(), threads);
    for (uint64_t seed = 1; seed <= 120; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      constexpr int64_t kTokens[] = {1, 2, 5, 31};
      const testing::RandomGraphOptions options = {
          .seed = seed,
          .node_count = 10 + static_cast<int>(seed % 50),
          .n_tokens = kTokens[seed % 4],
          .width = seed % 3 == 0 ? 256 : 32,
      };
      const Computed alone = compute(options, *cpu.backend, threads, false);
      const Computed joined = compute(options, *cpu.backend, threads, true);
      ASSERT_EQ(joined.outputs, alone.outputs);
      steps_alone += alone.steps;
      steps_joined += joined.steps;
    }
  }
  EXPECT_LT(steps_joined, steps_alone * 3 / 4);  // else little of the above was put to the test
}

// A step with accesses as given, that notes what it was asked to do.
class DescribedStep final : public ItemStep {
 public:
  DescribedStep(int64_t items, int64_t item_work, const std::vector<Access>& accesses)
      : ItemStep(items, item_work) {
    for (const Access& access : accesses) touches(access);
  }
  void run_items(const RunContext&, int64_t, int64_t) const override {}
};

Access even(Access::Kind kind, uint64_t begin, uint64_t item_bytes, uint64_t item_stride) {
  Access access;
  access.kind = kind;
  access.is_even = true;
  access.begin = begin;
  access.item_bytes = item_bytes;
  access.item_stride = item_stride;
  return access;
}

Access any(Access::Kind kind, uint64_t begin, uint64_t bytes) {
  Access access;
  access.kind = kind;
  access.begin = begin;
  access.item_bytes = bytes;
  return access;
}

// Whether a step of `items` with access b follows one of 8 items with access a.
bool joins(const Access& a, const Access& b, int64_t items = 8) {
  const ItemChain chain(std::make_unique<DescribedStep>(8, 10, std::vector{a}), 2);
  return chain.admits(DescribedStep(items, 10, {b}));
}

constexpr Access::Kind kRead = Access::Kind::read;
constexpr Access::Kind kAhead = Access::Kind::read_ahead;
constexpr Access::Kind kWrite = Access::Kind::write;

TEST(ItemChain, ReadsTheSameItemThatTheStepBeforeWrote) {
  const Access written = even(kWrite, 4096, 64, 64);
  EXPECT_TRUE(joins(written, even(kRead, 4096, 64, 64)));
  EXPECT_TRUE(joins(written, even(kRead, 4096, 128, 128), 4));   // two of them
  EXPECT_TRUE(joins(written, even(kRead, 4096, 32, 32), 16));    // a half of one
  EXPECT_TRUE(joins(written, even(kRead, 4096 + 16, 32, 64)));   // a part of it
  EXPECT_FALSE(joins(written, even(kRead, 4096 + 16, 64, 64)));  // and of the next
  EXPECT_FALSE(joins(written, even(kRead, 4096 + 64, 64, 64)));  // the next
  EXPECT_FALSE(joins(written, even(kRead, 4096 - 64, 64, 64)));  // the one before
  EXPECT_FALSE(joins(written, even(kRead, 4096, 64, 128)));      // every second
  EXPECT_FALSE(joins(written, any(kRead, 4096, 512)));           // any
  EXPECT_TRUE(joins(written, even(kRead, 4096 + 512, 64, 64)));  // what lies behind
  EXPECT_TRUE(joins(written, any(kRead, 4096 - 512, 512)));      // or before
  EXPECT_FALSE(joins(written, any(kRead, 4096 - 512, 513)));
}

TEST(ItemChain, OverwritesNothingThatIsStillRead) {
  const Access read = even(kRead, 4096, 64, 64);
  EXPECT_TRUE(joins(read, even(kWrite, 4096, 64, 64)));
  EXPECT_FALSE(joins(read, even(kWrite, 4096 - 64, 64, 64)));
  EXPECT_FALSE(joins(read, any(kWrite, 4096, 8)));
  EXPECT_TRUE(joins(read, any(kWrite, 0, 4096)));
  EXPECT_FALSE(joins(any(kRead, 4096, 64), even(kWrite, 4096, 64, 64)));
  EXPECT_FALSE(joins(even(kWrite, 4096, 64, 64), even(kWrite, 4096 + 64, 64, 64)));
  EXPECT_TRUE(joins(read, even(kRead, 4096 + 64, 64, 64)));  // two readers
}

TEST(ItemChain, ChecksNothingThatItComputesItself) {
  const Access written = even(kWrite, 4096, 64, 64);
  EXPECT_FALSE(joins(written, any(kAhead, 4096, 512)));
  EXPECT_FALSE(joins(written, any(kAhead, 4096, 512), 1));  // though there is one item only
  EXPECT_TRUE(joins(written, any(kAhead, 0, 4096)));
  EXPECT_FALSE(joins(any(kAhead, 4096, 64), written));
}

TEST(ItemChain, TellsAddressesFromPlacesInTheWorkspace) {
  Access in_workspace = even(kRead, 4096, 64, 64);
  in_workspace.in_workspace = true;
  EXPECT_FALSE(joins(even(kWrite, 4096 + 64, 64, 64), even(kRead, 4096, 64, 64)));
  EXPECT_TRUE(joins(even(kWrite, 4096 + 64, 64, 64), in_workspace));
  EXPECT_TRUE(joins(workspace_access(kWrite, 4096, 64), in_workspace));
  EXPECT_FALSE(joins(workspace_access(kWrite, 4096 + 64, 64), in_workspace));
}

TEST(ItemChain, OneItemIsDoneInOrderSoAnythingGoes) {
  EXPECT_TRUE(joins(even(kWrite, 4096, 64, 64), any(kRead, 4096, 512), 1));
  EXPECT_TRUE(joins(even(kWrite, 4096, 64, 64), any(kRead, 4096, 512), 3));  // 8 and 3: one group
}

TEST(ItemChain, LosesNoItemsUnlessItIsLittleWork) {
  const auto admits = [](int threads, int64_t items, int64_t work, int64_t next,
                         int64_t next_work) {
    const ItemChain chain(std::make_unique<DescribedStep>(items, work, std::vector<Access>{}),
                          threads);
    return chain.admits(DescribedStep(next, next_work, {}));
  };
  for (const int threads : {1, 4}) {
    SCOPED_TRACE(threads);
    EXPECT_TRUE(admits(threads, 16, 100000, 16, 100000));
    EXPECT_TRUE(admits(threads, 48, 100000, 16, 100000));
    EXPECT_TRUE(admits(threads, 1, 100000, 1, 100000));
    EXPECT_FALSE(admits(threads, 16, 100000, 1, 100000));
    EXPECT_FALSE(admits(threads, 1, 100000, 16, 100000));
    EXPECT_FALSE(admits(threads, 16, 100000, 10, 100000));  // groups of 8 and 5
    EXPECT_TRUE(admits(threads, 16, 1000, 1, 1000));
    EXPECT_TRUE(admits(threads, 16, 1000, 10, 1000));
  }
  // 64 items are for four pieces, two groups only for two.
  EXPECT_FALSE(admits(4, 64, 1000, 2, 1000));
}

// Three tensors over each other: c = a + b, then d = 2 c where b was, or a row further on.
class OverlaidSum {
 public:
  OverlaidSum(int64_t rows, int64_t shift_rows) {
    const Dims shape = {64, rows, 1, 1};
    Tensor* a = test_.leaf(DType::f32, shape);
    Tensor* room = test_.leaf(DType::f32, {64, 2 * rows, 1, 1});
    Tensor* b = ops::slice(test_.graph(), room, 1, rows / 2, rows);
    Tensor* c = ops::add(test_.graph(), a, b);
    result_ = ops::scale(test_.graph(), c, 2.0f);
    place(*result_, *room->buffer, static_cast<uint64_t>(rows / 2 + shift_rows) * 64 * 4);
    test_.place_nodes();
    const int64_t n = 64 * rows;
    for (int64_t i = 0; i < n; ++i) {
      expected_.push_back(2 * (TestGraph::floats(a)[i] + TestGraph::floats(b)[i]));
    }
  }

  size_t steps(int threads) {
    return Plan::compile({test_.graph().nodes(), 0}, threads).value()->step_count();
  }
  void run_and_check(int threads) {
    CpuUnderTest cpu = make_cpu(detect_isa(), threads);
    ASSERT_TRUE(test_.run(*cpu.backend).ok());
    EXPECT_EQ(TestGraph::values(result_), expected_);
  }

 private:
  TestGraph test_;
  Tensor* result_ = nullptr;
  std::vector<float> expected_;
};

TEST(ItemChain, RunsStepsApartWhereMemoryIsReusedWithAShift) {
  for (const int64_t shift : {-1, 0, 1}) {
    SCOPED_TRACE(shift);
    OverlaidSum sum(256, shift);
    EXPECT_EQ(sum.steps(2), shift == 0 ? 1u : 2u);
    sum.run_and_check(2);
  }
}

// A layer of a model with all kinds of norms, in memory as the allocator reuses it.
class LayerGraph {
 public:
  explicit LayerGraph(int64_t tokens, int64_t n_ff = 128) : tokens_(tokens) {
    Tensor* x = test_.leaf(DType::f32, {64, tokens, 1, 1});
    x = ops::add(graph(), norm(attend(norm(x))), x);
    x = ops::add(graph(), norm(feed_forward(norm(x), n_ff)), x);
    graph().mark_output(x);
    EXPECT_TRUE(allocator_.allocate(graph()).ok());
  }

  size_t steps(int threads) {
    return Plan::compile({graph().nodes(), 0}, threads).value()->step_count();
  }
  // Computed `at_once` nodes at a time.
  std::vector<std::byte> result(Backend& backend, size_t at_once) {
    for (Buffer* buffer : allocator_.buffers(0)) buffer->fill(std::byte{0xff});
    const std::span<Tensor* const> nodes = graph().nodes();
    for (size_t i = 0; i < nodes.size(); i += at_once) {
      const size_t count = std::min(at_once, nodes.size() - i);
      const Status status = backend.compute({nodes.subspan(i, count), 0});
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
    return TestGraph::bytes(graph().outputs()[0]);
  }

 private:
  Graph& graph() { return test_.graph(); }

  Tensor* product(int64_t rows, Tensor* x) {
    Tensor* weight = test_.leaf(DType::q8_0, {x->ne[0], rows, 1, 1});
    const auto bytes = test::random_rows(DType::q8_0, x->ne[0], rows, ++seed_);
    std::memcpy(weight->data, bytes.data(), weight->size_bytes());
    return ops::mul_mat(graph(), weight, x);
  }
  Tensor* norm(Tensor* x) {
    return ops::rms_norm(graph(), x, test_.leaf(DType::f32, {x->ne[0], 1, 1, 1}), 1e-5f);
  }
  std::vector<int32_t> numbers(int32_t step) const {
    std::vector<int32_t> result(static_cast<size_t>(tokens_));
    for (size_t i = 0; i < result.size(); ++i) result[i] = static_cast<int32_t>(i) * step;
    return result;
  }

  Tensor* attend(Tensor* x) {
    const auto heads = [&](int64_t count) {
      return ops::reshape(graph(), product(32 * count, x), {32, count, tokens_, 1});
    };
    Tensor* q = heads(2);
    Tensor* k = heads(1);
    Tensor* v = heads(1);
    RopeParams rope;
    rope.n_rot = 32;
    Tensor* positions = test_.ints(numbers(1));
    q = ops::rope(graph(), norm(q), positions, nullptr, rope);
    k = ops::rope(graph(), norm(k), positions, nullptr, rope);
    const int64_t blocks = tokens_ / ops::kKvBlockPositions + 1;
    const auto cache = [&] {
      return test_.leaf(DType::f16, {ops::kKvBlockPositions * 32, blocks, 1, 1});
    };
    Tensor* v_cache = cache();
    std::vector<int32_t> table(static_cast<size_t>(blocks));
    for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
    const ops::AttentionSources sources = {
        .q = q,
        .k_cache = ops::kv_write(graph(), k, v, cache(), v_cache, test_.ints(numbers(1))),
        .v_cache = v_cache,
        .block_table = test_.ints(table),
        .seq = test_.ints(numbers(0)),
        .positions = positions,
        .sinks = nullptr};
    AttentionParams params;
    params.n_head_kv = 1;
    params.head_dim_v = 32;
    Tensor* mixed = ops::attention(graph(), sources, params);
    return product(64, ops::reshape(graph(), mixed, {64, tokens_, 1, 1}));
  }
  Tensor* feed_forward(Tensor* x, int64_t n_ff) {
    Tensor* gate = product(n_ff, x);
    Tensor* up = product(n_ff, x);
    return product(64, ops::gated(graph(), gate, up, Activation::silu));
  }

  int64_t tokens_;
  uint64_t seed_ = 0;
  TestGraph test_;
  GraphAllocator allocator_{{&host_buffer_type()}};
};

TEST(ItemChain, JoinsWhatStandsBetweenALayersProducts) {
  for (const int64_t tokens : {1, 7, 64}) {
    SCOPED_TRACE(tokens);
    // norm, round | q k v | norms, table, ropes, write | attention | round | product | norm, add,
    // norm, round | gate up | gated, round | product | norm, add
    EXPECT_EQ(LayerGraph(tokens).steps(2), 11u);
  }
}

// Rows of 9,728 are cut into four parts for gating and rounding.
TEST(ItemChain, GivesALayerTheBitsOfStepsRunOneByOne) {
  for (const int threads : {1, 3}) {
    CpuUnderTest cpu = make_cpu(detect_isa(), threads);
    for (const int64_t tokens : {1, 5, 40}) {
      for (const int64_t n_ff : {128, 9728}) {
        SCOPED_TRACE(::testing::Message() << tokens << " tokens, " << n_ff << " wide");
        LayerGraph layer(tokens, n_ff);
        const std::vector<std::byte> alone = layer.result(*cpu.backend, 1);
        EXPECT_EQ(layer.result(*cpu.backend, SIZE_MAX), alone);
      }
    }
  }
}

// Against the kernel itself, which knows no parts.
TEST(ItemChain, RoundsPartsOfRowsAsWholeRows) {
  constexpr int64_t kWide = 9728;
  for (const int64_t rows : {1, 3}) {
    for (const bool is_dense : {true, false}) {
      SCOPED_TRACE(::testing::Message() << rows << (is_dense ? " dense rows" : " cut rows"));
      TestGraph test;
      Tensor* wide = test.leaf(DType::f32, {kWide * (is_dense ? 1 : 2), rows, 1, 1});
      Tensor* x = ops::slice(test.graph(), wide, 0, 0, kWide);
      Tensor* weight = test.leaf(DType::q8_0, {kWide, 48, 1, 1});
      const auto bytes = test::random_rows(DType::q8_0, kWide, 48, 1);
      std::memcpy(weight->data, bytes.data(), weight->size_bytes());
      Tensor* y = ops::mul_mat(test.graph(), weight, x);
      test.place_nodes();
      ASSERT_TRUE(test.run(*make_cpu(detect_isa(), 3).backend).ok());

      const MatmulKernels& kernels = matmul_kernels(detect_isa());
      const auto packed = test::make_weights(DType::q8_0, {kWide, 48, 1, 1}, bytes, true);
      for (int64_t row = 0; row < rows; ++row) {
        const auto* from =
            reinterpret_cast<const float*>(x->data + x->nb[1] * static_cast<uint64_t>(row));
        const test::Activations whole =
            test::make_activations(kernels, DType::q8_0, {from, from + kWide}, kWide, 1);
        const WeightMatrix matrix = packed->matrix();
        const std::vector<float> expected =
            test::multiply(kernels, matrix, whole, 1, plan_pieces(matrix, 1, 1));
        const float* got = TestGraph::floats(y) + row * 48;
        EXPECT_EQ(std::vector<float>(got, got + 48), expected) << row;
      }
    }
  }
}

}  // namespace
}  // namespace strata::cpu
