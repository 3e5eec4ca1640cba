// Every op on every vector path: scalar is near the reference (sums in double), the others equal
// scalar bit by bit, for 1 and 3 threads. Shapes have tails behind the last 16 elements.
#include "backends/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "backends/backends.h"
#include "backends/cpu/cpu_probe.h"
#include "runtime/base/digest.h"
#include "tests/backends/cpu/backend_support.h"

namespace strata::cpu {
namespace {

struct OpCase {
  const char* name;
  // Builds the graph and returns its result.
  std::function<Tensor*(TestGraph&)> build;
  double tolerance = 2e-6;  // of the largest magnitude of the result
};

Tensor* rope_case(TestGraph& test, RopeStyle style, bool factors, float ext_factor) {
  RopeParams params;
  params.n_rot = 20;
  params.style = style;
  params.freq_scale = 0.25f;
  params.ext_factor = ext_factor;
  params.attn_factor = 1.1f;
  params.n_ctx_original = 64;
  Tensor* x = test.leaf(DType::f32, {24, 3, 4, 1});
  Tensor* freq_factors = nullptr;
  if (factors) {
    freq_factors = test.leaf(DType::f32, {10, 1, 1, 1});
    for (int i = 0; i < 10; ++i)
      TestGraph::floats(freq_factors)[i] = 1.0f + 0.3f * static_cast<float>(i);
  }
  return ops::rope(test.graph(), x, test.ints({0, 7, 1000, 3}), freq_factors, params);
}

Tensor* strided(TestGraph& test) {
  Tensor* wide = test.leaf(DType::f32, {37 * 3, 5, 2, 1});
  return ops::slice(test.graph(), wide, 0, 37, 37);
}

std::vector<OpCase> row_cases() {
  const auto x = [](TestGraph& t) { return t.leaf(DType::f32, {37, 5, 2, 1}); };
  return {
      {"rms_norm",
       [=](TestGraph& t) {
         return ops::rms_norm(t.graph(), x(t), t.leaf(DType::f32, {37, 1, 1, 1}), 1e-5f);
       }},
      {"rms_norm_strided",
       [=](TestGraph& t) {
         return ops::rms_norm(t.graph(), strided(t), t.leaf(DType::f32, {37, 1, 1, 1}), 1e-5f);
       }},
      {"layer_norm",
       [=](TestGraph& t) {
         return ops::layer_norm(t.graph(), x(t), t.leaf(DType::f32, {37, 1, 1, 1}),
                                t.leaf(DType::f32, {37, 1, 1, 1}), 1e-5f);
       }},
      {"add", [=](TestGraph& t) { return ops::add(t.graph(), x(t), x(t)); }},
      {"add_long",
       [=](TestGraph& t) {
         return ops::add(t.graph(), t.leaf(DType::f32, {5001, 7, 1, 1}),
                         t.leaf(DType::f32, {5001, 7, 1, 1}));
       }},
      {"add_bias",
       [=](TestGraph& t) {
         return ops::add(t.graph(), x(t), t.leaf(DType::f32, {37, 1, 1, 1}));
       }},
      {"add_scalar",
       [=](TestGraph& t) {
         return ops::add(t.graph(), x(t), t.leaf(DType::f32, {1, 1, 1, 1}));
       }},
      {"multiply_repeated",
       [=](TestGraph& t) {
         return ops::multiply(t.graph(), strided(t), t.leaf(DType::f32, {37, 5, 1, 1}));
       }},
      {"scale", [=](TestGraph& t) { return ops::scale(t.graph(), x(t), 0.3f); }},
      {"sum",
       [=](TestGraph& t) {
         return ops::sum(t.graph(), {x(t), x(t), strided(t)});
       }},
      {"sum_of_one", [=](TestGraph& t) { return ops::sum(t.graph(), {x(t)}); }},
      {"soft_cap", [=](TestGraph& t) { return ops::soft_cap(t.graph(), x(t), 1.5f); }},
      {"contiguous",
       [=](TestGraph& t) {
         return ops::contiguous(t.graph(), ops::permute(t.graph(), x(t), {1, 2, 0, 3}));
       }},
  };
}

std::vector<OpCase> model_cases() {
  return {
      {"rope_interleaved",
       [=](TestGraph& t) { return rope_case(t, RopeStyle::interleaved, false, 0.0f); }},
      {"rope_halves", [=](TestGraph& t) { return rope_case(t, RopeStyle::halves, true, 0.0f); }},
      {"rope_yarn", [=](TestGraph& t) { return rope_case(t, RopeStyle::halves, false, 1.0f); }},
      {"mul_mat",
       [=](TestGraph& t) {
         Tensor* input = t.leaf(DType::f32, {64, 5, 1, 1});
         Tensor* first = ops::mul_mat(t.graph(), t.leaf(DType::f32, {64, 19, 1, 1}), input);
         Tensor* second = ops::mul_mat(t.graph(), t.leaf(DType::f32, {64, 19, 1, 1}), input);
         return ops::add(t.graph(), first, second);
       },
       1e-5},
      {"mul_mat_id",
       [=](TestGraph& t) {
         Tensor* logits = t.leaf(DType::f32, {6, 3, 1, 1});
         Tensor* ids = ops::top_k(t.graph(), logits, 2);
         Tensor* routed = ops::route_weights(t.graph(), logits, ids, {});
         Tensor* out = ops::mul_mat_id(t.graph(), t.leaf(DType::f32, {32, 18, 6, 1}),
                                       t.leaf(DType::f32, {32, 1, 3, 1}), ids);
         return ops::combine(t.graph(), out, routed);
       },
       1e-5},
      {"get_rows",
       [=](TestGraph& t) {
         return ops::get_rows(t.graph(), t.leaf(DType::f32, {40, 9, 1, 1}), t.ints({8, 0, 3}));
       }},
      {"route_sigmoid",
       [=](TestGraph& t) {
         Tensor* logits = t.leaf(DType::f32, {19, 3, 1, 1});
         RouteParams params{Gating::sigmoid, false, 2.5f};
         return ops::route_weights(t.graph(), logits, ops::top_k(t.graph(), logits, 4), params);
       }},
  };
}

std::vector<OpCase> op_cases() {
  const auto x = [](TestGraph& t) { return t.leaf(DType::f32, {37, 5, 2, 1}); };
  std::vector<OpCase> cases = row_cases();
  for (OpCase& one : model_cases()) cases.push_back(std::move(one));
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh, Activation::relu}) {
    constexpr const char* kNames[][2] = {
        {"silu", "silu_gated"}, {"gelu", "gelu_gated"}, {"relu", "relu_gated"}};
    const auto& names = kNames[static_cast<int>(activation)];
    cases.push_back(
        {names[0], [=](TestGraph& t) { return ops::activate(t.graph(), x(t), activation); }});
    cases.push_back({names[1], [=](TestGraph& t) {
                       return ops::gated(t.graph(), strided(t), x(t), activation);
                     }});
  }
  return cases;
}

class CpuOp : public ::testing::TestWithParam<OpCase> {};

INSTANTIATE_TEST_SUITE_P(Ops, CpuOp, ::testing::ValuesIn(op_cases()),
                         [](const ::testing::TestParamInfo<OpCase>& tested) {
                           return std::string(tested.param.name);
                         });

TEST_P(CpuOp, IsNearTheReferenceAndEqualOnAllPaths) {
  TestGraph test;
  Tensor* result = GetParam().build(test);
  test.place_nodes();
  test.run_reference();
  const std::vector<float> reference = TestGraph::values(result);
  double largest = 0;
  for (const float value : reference) largest = std::max(largest, std::abs(double{value}));

  std::vector<std::byte> expected;
  for (const Isa isa : available_isas()) {
    for (const int threads : {1, 3}) {
      CpuUnderTest cpu = make_cpu(isa, threads);
      for (const Tensor* node : test.graph().nodes()) {
        EXPECT_TRUE(cpu.device->supports(*node)) << describe(*node);
      }
      std::memset(result->data, 0xff, result->size_bytes());
      const Status status = test.run(*cpu.backend);
      ASSERT_TRUE(status.ok()) << status.to_string();
      if (expected.empty()) {
        expected = TestGraph::bytes(result);
        const std::vector<float> values = TestGraph::values(result);
        for (size_t i = 0; i < values.size(); ++i) {
          ASSERT_NEAR(values[i], reference[i], GetParam().tolerance * largest) << i;
        }
      }
      ASSERT_EQ(expected, TestGraph::bytes(result)) << isa_name(isa) << ", " << threads;
    }
  }
}

// With the test above, this holds for every path: on a machine without AVX-512 it proves equality
// with one that has it.
TEST_P(CpuOp, GivesTheBitsOfOtherMachines) {
  TestGraph test;
  const Tensor* result = GetParam().build(test);
  test.place_nodes();
  ASSERT_TRUE(test.run(*make_cpu({}, 1).backend).ok());
  EXPECT_EQ(sha256_hex(TestGraph::bytes(result)),
            golden_digests("cpu/op_digests.txt")[GetParam().name])
      << GetParam().name;
}

TEST(CpuBackend, TopKOrdersTiesByIdAndPutsNaNLast) {
  TestGraph test;
  Tensor* x = test.leaf(DType::f32, {6, 1, 1, 1});
  const float values[] = {1.0f, NAN, 3.0f, 3.0f, -1.0f, 1.0f};
  std::memcpy(x->data, values, sizeof values);
  Tensor* ids = ops::top_k(test.graph(), x, 6);
  test.place_nodes();
  ASSERT_TRUE(test.run(*make_cpu({}, 1).backend).ok());
  const int32_t* got = reinterpret_cast<const int32_t*>(ids->data);
  EXPECT_EQ(std::vector<int32_t>(got, got + 6), (std::vector<int32_t>{2, 3, 0, 5, 4, 1}));
}

// Angles in double: at position 2^17 a float's angle would be off by 0.01 and more.
TEST(CpuBackend, RopeIsExactAtLongPositions) {
  const std::vector<int32_t> positions = {0, 1 << 15, 1 << 16, 1 << 17};
  RopeParams params;
  params.n_rot = 64;
  params.freq_base = 500000.0f;
  TestGraph test;
  Tensor* x = test.leaf(DType::f32, {64, 1, 4, 1});
  Tensor* y = ops::rope(test.graph(), x, test.ints(positions), nullptr, params);
  test.place_nodes();
  ASSERT_TRUE(test.run(*make_cpu(detect_isa(), 1).backend).ok());
  for (int t = 0; t < 4; ++t) {
    const float* in = TestGraph::floats(x) + t * 64;
    const float* out = TestGraph::floats(y) + t * 64;
    for (int i = 0; i < 32; ++i) {
      const double angle = positions[static_cast<size_t>(t)] * std::pow(500000.0, -2.0 * i / 64);
      const double expected0 = in[i] * std::cos(angle) - in[i + 32] * std::sin(angle);
      const double expected1 = in[i] * std::sin(angle) + in[i + 32] * std::cos(angle);
      EXPECT_NEAR(out[i], expected0, 1e-6) << positions[static_cast<size_t>(t)];
      EXPECT_NEAR(out[i + 32], expected1, 1e-6) << positions[static_cast<size_t>(t)];
    }
  }
}

// A plan is kept by uid, the workspace is shared by plans of different sizes.
TEST(CpuBackend, RunsSeveralGraphsInTurnFromKeptPlans) {
  CpuUnderTest cpu = make_cpu(detect_isa(), 2);
  std::vector<std::unique_ptr<TestGraph>> graphs;
  std::vector<Tensor*> results;
  std::vector<std::vector<std::byte>> expected;
  for (int64_t tokens = 1; tokens <= 4; ++tokens) {
    TestGraph& test = *graphs.emplace_back(std::make_unique<TestGraph>(tokens));
    Tensor* x = test.leaf(DType::f32, {64, 2, tokens, 1});
    std::vector<int32_t> positions(static_cast<size_t>(tokens), 5);
    RopeParams params;
    params.n_rot = 64;
    results.push_back(ops::rope(test.graph(), x, test.ints(positions), nullptr, params));
    test.place_nodes();
    ASSERT_TRUE(test.run(*cpu.backend).ok());
    expected.push_back(TestGraph::bytes(results.back()));
  }
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < graphs.size(); ++i) {
      std::memset(results[i]->data, 0xff, results[i]->size_bytes());
      ASSERT_TRUE(cpu.backend->compute({graphs[i]->graph().nodes(), i + 1}).ok());
      EXPECT_EQ(expected[i], TestGraph::bytes(results[i]));
    }
  }
}

// What a caller says is gone is dropped, and nothing else; its number may come again.
TEST(CpuBackend, APlanGoesWhenItsGraphIsForgotten) {
  CpuUnderTest cpu = make_cpu(detect_isa(), 1);
  auto& backend = dynamic_cast<CpuBackend&>(*cpu.backend);
  TestGraph test;
  ops::scale(test.graph(), test.leaf(DType::f32, {37, 5, 2, 1}), 0.3f);
  test.place_nodes();
  for (const uint64_t uid : {1, 2, 3, 2, 1}) {
    ASSERT_TRUE(backend.compute({test.graph().nodes(), uid}).ok());
  }
  ASSERT_TRUE(backend.compute({test.graph().nodes(), 0}).ok());
  EXPECT_EQ(backend.plan_count(), 3u);
  backend.forget(2);
  backend.forget(99);
  EXPECT_EQ(backend.plan_count(), 2u);
  ASSERT_TRUE(backend.compute({test.graph().nodes(), 2}).ok());
  EXPECT_EQ(backend.plan_count(), 3u);
}

TEST(CpuBackend, RefusesIdsOutOfRange) {
  TestGraph test;
  Tensor* table = test.leaf(DType::f32, {32, 9, 1, 1});
  ops::get_rows(test.graph(), table, test.ints({8, 9}));
  test.place_nodes();
  const Status status = test.run(*make_cpu({}, 1).backend);
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.message(), "get_rows: id 9 at index 1 is outside [0, 9)");
}

TEST(CpuProbe, MeasuresSomethingPlausible) {
  ProbeOptions options;
  options.isa = detect_isa();
  options.span_seconds = 0.02;
  options.read_bytes = uint64_t{16} << 20;
  const DeviceSpeed speed = probe_speed(options).value();
  // From a tenth of a small core to far above the fastest one.
  EXPECT_GT(speed.read_bytes_per_s, 1e8);
  EXPECT_LT(speed.read_bytes_per_s, 1e12);
  EXPECT_GT(speed.int8_ops_per_s, 1e8);
  EXPECT_LT(speed.int8_ops_per_s, 1e13);
  EXPECT_GT(speed.f32_ops_per_s, 1e8);
  EXPECT_LT(speed.f32_ops_per_s, 1e13);
}

TEST(CpuDevice, DescribesTheMachineAndItsMemory) {
  DeviceRegistry registry;
  ASSERT_TRUE(register_all(registry, {}).ok());
  EXPECT_EQ(register_all(registry, {}).code(), StatusCode::already_exists);
  const Device* device = registry.find("CPU");
  ASSERT_NE(device, nullptr);
  EXPECT_EQ(device->kind(), DeviceKind::cpu);
  EXPECT_GT(device->memory().total_bytes, uint64_t{1} << 28);
  EXPECT_LE(device->memory().free_bytes, device->memory().total_bytes);
  EXPECT_NE(device->description().find(isa_name(detect_isa())), std::string_view::npos);
  ASSERT_EQ(device->weight_buffer_types().size(), 2u);
  EXPECT_EQ(device->weight_buffer_types()[0]->name(), "packed");
  EXPECT_EQ(device->create_backend({.threads = -1}).status().code(), StatusCode::invalid_argument);

  DeviceRegistry forced;
  EXPECT_EQ(register_all(forced, {.isa = "sse9"}).code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace strata::cpu
