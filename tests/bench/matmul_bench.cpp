// Speed of matrix products on one thread: GB/s of weights read and GOPS (a multiply and an add are
// two), per vector path, weight type and column count.
//
// The weights are about 100 MB of matrices of a small model's shapes, read one after the other, so
// that they come from memory or the last-level cache as in decoding. Names are
// path/type/columns/n; try --benchmark_filter='avx512.*/Q4_1/'.
#include <benchmark/benchmark.h>

#include <map>

#include "tests/backends/cpu/matmul_support.h"

namespace strata::cpu::test {
namespace {

struct Shape {
  int64_t k;
  int64_t rows;
};

// A layer of 576 dimensions with 3 of 9 heads for keys; K-quants need a multiple of 256.
std::vector<Shape> layer_shapes(DType dtype) {
  const int64_t n = dtype_traits(dtype).block_elements == 256 ? 512 : 576;
  return {{n, 576}, {n, 192}, {n, 192}, {n, 576}, {n, 1536}, {n, 1536}, {1536, 576}};
}

struct Model {
  std::vector<std::unique_ptr<Weights>> matrices;
  uint64_t bytes = 0;
  int64_t weights = 0;
  int64_t k_max = 0;
  int64_t rows_max = 0;
};

const Model& model_of(DType dtype) {
  static std::map<DType, Model> models;
  const auto found = models.find(dtype);
  if (found != models.end()) return found->second;
  models.clear();  // one at a time fits everywhere
  Model& model = models[dtype];
  while (model.bytes < 100'000'000) {
    for (const Shape& shape : layer_shapes(dtype)) {
      const auto rows = random_rows(dtype, shape.k, shape.rows, 1);
      model.matrices.push_back(make_weights(dtype, {shape.k, shape.rows, 1, 1}, rows, true));
      model.bytes += packed_buffer_type().allocation_size(model.matrices.back()->tensor);
      model.weights += shape.k * shape.rows;
      model.k_max = std::max(model.k_max, shape.k);
      model.rows_max = std::max(model.rows_max, shape.rows);
    }
  }
  return model;
}

void run_matmul(benchmark::State& state, Isa isa, DType dtype) {
  const int64_t columns = state.range(0);
  const MatmulKernels& kernels = matmul_kernels(isa);
  const Model& model = model_of(dtype);
  const auto x = make_activations(kernels, dtype, random_activations(model.k_max, columns, 2),
                                  model.k_max, columns);
  std::vector<float> y(static_cast<size_t>(model.rows_max * columns));
  for (auto _ : state) {
    for (const auto& matrix : model.matrices) {
      const WeightMatrix weights = matrix->matrix();
      const MatmulArgs args{weights, x.data(), x.stride, reinterpret_cast<std::byte*>(y.data()),
                            static_cast<uint64_t>(weights.rows) * 4};
      const PieceGrid grid = plan_pieces(weights, columns, 1);
      for (int64_t i = 0; i < grid.count; ++i) run_matmul_piece(kernels, args, grid.piece(i), {});
    }
    benchmark::ClobberMemory();
  }
  const double runs = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(model.bytes) * runs / 1e9,
                                              benchmark::Counter::kIsRate);
  state.counters["GOPS"] = benchmark::Counter(
      2.0 * static_cast<double>(model.weights * columns) * runs / 1e9, benchmark::Counter::kIsRate);
}

void run_pack(benchmark::State& state, DType dtype) {
  const Shape shape = {1536, 576};
  const auto rows = random_rows(dtype, shape.k, shape.rows, 1);
  const auto weights = make_weights(dtype, {shape.k, shape.rows, 1, 1}, rows, true);
  for (auto _ : state) {
    const Status status = weights->buffer->write(weights->tensor, 0, rows);
    benchmark::DoNotOptimize(status.ok());
  }
  state.counters["GB/s"] = benchmark::Counter(
      static_cast<double>(rows.size()) * static_cast<double>(state.iterations()) / 1e9,
      benchmark::Counter::kIsRate);
}

void run_quantise(benchmark::State& state, Isa isa) {
  const int64_t k = 1536;
  const auto x = random_activations(k, 1, 2);
  std::vector<ActivationBlock> blocks(static_cast<size_t>(k / 32));
  for (auto _ : state) {
    matmul_kernels(isa).quantise_row(x.data(), k, blocks.data());
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * k);
}

void register_all() {
  for (const DType dtype : kWeightTypes) {
    const std::string name(dtype_name(dtype));
    for (const Isa isa : isas()) {
      benchmark::RegisterBenchmark((isa_name(isa) + "/" + name + "/columns").c_str(),
                                   [=](benchmark::State& state) { run_matmul(state, isa, dtype); })
          ->Arg(1)
          ->Arg(2)
          ->Arg(4)
          ->Arg(8)
          ->Arg(32)
          ->Arg(512)
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(("pack/" + name).c_str(),
                                 [=](benchmark::State& state) { run_pack(state, dtype); });
  }
  for (const Isa isa : isas()) {
    benchmark::RegisterBenchmark((isa_name(isa) + "/quantise_activations").c_str(),
                                 [=](benchmark::State& state) { run_quantise(state, isa); });
  }
}

}  // namespace
}  // namespace strata::cpu::test

int main(int argc, char** argv) {
  strata::cpu::test::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
