// Speed of the CPU backend's parts other than matrix products, on one thread: attention over a long
// context and over a prompt, norms and activations.
//
// Attention is reported in GB/s of keys and values read (what bounds decoding) and in GOPS, a
// multiply and an add being two (what bounds a prompt). Names are
// attention/path/shape/KV type/context/queries, a shape being head size x heads / heads of keys;
// try
// --benchmark_filter='attention/avx512/.*/Q8_0/4096/1'.
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>
#include <random>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/isa.h"
#include "runtime/graph/ops.h"
#include "runtime/memory/host_buffer.h"

namespace strata::cpu {
namespace {

// Leaves and nodes, each with memory of its own.
class Workbench {
 public:
  Workbench(Isa isa, int threads)
      : device_(make_cpu_device({.isa = isa_name(isa)}).value()),
        backend_(device_->create_backend({.threads = threads}).value()) {}

  Graph graph;

  Tensor* leaf(DType dtype, const Dims& ne) {
    Tensor& tensor = leaves_.emplace_back();
    tensor.dtype = dtype;
    tensor.ne = ne;
    tensor.nb = dense_strides(dtype, ne).value();
    give_memory(tensor);
    if (dtype == DType::f32) {
      std::normal_distribution<float> normal(0.0f, 1.0f);
      float* values = reinterpret_cast<float*>(tensor.data);
      for (int64_t i = 0; i < tensor.element_count(); ++i) values[i] = normal(random_);
    }
    return &tensor;
  }
  Tensor* ints(const Dims& ne, int32_t first, int32_t step) {
    Tensor* tensor = leaf(DType::i32, ne);
    int32_t* values = reinterpret_cast<int32_t*>(tensor->data);
    for (int64_t i = 0; i < tensor->element_count(); ++i) {
      values[i] = first + step * static_cast<int32_t>(i);
    }
    return tensor;
  }
  void place_nodes() {
    for (Tensor* node : graph.nodes()) {
      if (node->view_source != nullptr) {
        place_view(*node);
      } else {
        give_memory(*node);
      }
    }
  }
  bool run(uint64_t uid) { return backend_->compute({graph.nodes(), uid}).ok(); }
  void run_all(benchmark::State& state) {
    place_nodes();
    for (auto _ : state) {
      if (!run(1)) state.SkipWithError("the graph failed");
    }
  }

 private:
  void give_memory(Tensor& tensor) {
    buffers_.push_back(host_buffer_type().allocate(tensor.size_bytes()).value());
    buffers_.back()->fill(std::byte{0});
    place(tensor, *buffers_.back(), 0);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::mt19937_64 random_{1};
  std::deque<Tensor> leaves_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

struct HeadShape {
  int64_t head_dim;
  int64_t n_head;
  int64_t n_head_kv;
};

// `tokens` queries at the end of a context of `depth` positions.
void attention(benchmark::State& state, Isa isa, DType kv, const HeadShape& shape) {
  const int64_t depth = state.range(0);
  const int64_t tokens = state.range(1);
  Workbench bench(isa, 1);
  const int64_t blocks = (depth + 15) / 16;
  const Dims cache = {16 * shape.head_dim * shape.n_head_kv, blocks, 1, 1};
  ops::AttentionSources sources;
  sources.q = bench.leaf(DType::f32, {shape.head_dim, shape.n_head, tokens, 1});
  sources.k_cache = bench.leaf(kv, cache);
  sources.v_cache = bench.leaf(kv, cache);
  sources.block_table = bench.ints({blocks, 1, 1, 1}, 0, 1);
  sources.seq = bench.ints({tokens, 1, 1, 1}, 0, 0);
  sources.positions = bench.ints({tokens, 1, 1, 1}, static_cast<int32_t>(depth - tokens), 1);
  AttentionParams params;
  params.scale = 0.125f;
  params.n_head_kv = static_cast<int32_t>(shape.n_head_kv);
  params.head_dim_v = static_cast<int32_t>(shape.head_dim);
  ops::attention(bench.graph, sources, params);
  bench.run_all(state);
  const double bytes = 2.0 * static_cast<double>(sources.k_cache->size_bytes());
  // Each query sees the positions up to its own; scores and outputs take a multiply-add each.
  const double pairs = static_cast<double>(tokens) *
                       (static_cast<double>(depth) - static_cast<double>(tokens - 1) / 2);
  const double ops = 4.0 * pairs * static_cast<double>(shape.head_dim * shape.n_head);
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(bytes * runs / 1e9, benchmark::Counter::kIsRate);
  state.counters["GOPS"] = benchmark::Counter(ops * runs / 1e9, benchmark::Counter::kIsRate);
}

void rms_norm(benchmark::State& state, Isa isa) {
  Workbench bench(isa, 1);
  const int64_t n = state.range(0);
  ops::rms_norm(bench.graph, bench.leaf(DType::f32, {n, 64, 1, 1}),
                bench.leaf(DType::f32, {n, 1, 1, 1}), 1e-5f);
  bench.run_all(state);
  state.SetItemsProcessed(state.iterations() * n * 64);
}

void gated(benchmark::State& state, Isa isa) {
  Workbench bench(isa, 1);
  const int64_t n = state.range(0);
  Tensor* up = bench.leaf(DType::f32, {n, 64, 1, 1});
  ops::gated(bench.graph, bench.leaf(DType::f32, {n, 64, 1, 1}), up, Activation::silu);
  bench.run_all(state);
  state.SetItemsProcessed(state.iterations() * n * 64);
}

void register_benchmarks() {
  // SmolLM2, Llama 3.2 3B, Gemma 3 270M.
  const std::pair<const char*, HeadShape> shapes[] = {
      {"64x9_3", {64, 9, 3}}, {"128x24_8", {128, 24, 8}}, {"256x4_1", {256, 4, 1}}};
  for (const Isa isa : available_isas()) {
    if (isa.vnni || isa.level == IsaLevel::scalar) continue;
    const std::string path = isa_name(isa);
    for (const auto& [name, shape] : shapes) {
      for (const DType kv : {DType::f32, DType::f16, DType::q8_0, DType::q4_0}) {
        const std::string title =
            "attention/" + path + "/" + name + "/" + std::string(dtype_name(kv));
        benchmark::RegisterBenchmark(
            title.c_str(),
            [=, s = shape](benchmark::State& state) { attention(state, isa, kv, s); })
            ->Args({512, 1})
            ->Args({4096, 1})
            ->Args({8192, 1})
            ->Args({32768, 1})
            ->Args({512, 512})
            ->Args({4096, 512});
      }
    }
    benchmark::RegisterBenchmark(("rms_norm/" + path).c_str(),
                                 [=](benchmark::State& state) { rms_norm(state, isa); })
        ->Arg(576)
        ->Arg(4096);
    benchmark::RegisterBenchmark(("silu_gated/" + path).c_str(), [=](benchmark::State& state) {
      gated(state, isa);
    })->Arg(1536);
  }
}

}  // namespace
}  // namespace strata::cpu

int main(int argc, char** argv) {
  strata::cpu::register_benchmarks();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
