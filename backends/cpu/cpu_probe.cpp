#include "backends/cpu/cpu_probe.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/packed_buffer_type.h"
#include "backends/cpu/sustained_rate.h"
#include "runtime/base/thread_pool.h"
#include "runtime/memory/host_buffer.h"

namespace strata::cpu {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

constexpr int64_t kRowsTogether = 64;  // what packing may want a multiple of

// A product of the kernels, with its memory: packed weights {n_in, n_out} times n_columns columns.
struct Product {
  Tensor weights;
  std::unique_ptr<Buffer> weights_memory;
  std::unique_ptr<Buffer> x;
  std::unique_ptr<Buffer> y;
  MatmulArgs args;
};

// Zeros throughout: they take as long as any other numbers.
Result<std::unique_ptr<Product>> make_product(DType dtype, int64_t n_in, int64_t n_out,
                                              int64_t n_columns) {
  auto product = std::make_unique<Product>();
  Tensor& weights = product->weights;
  weights.name = "probe";
  weights.dtype = dtype;
  weights.ne = {n_in, n_out, 1, 1};
  weights.nb = dense_strides(dtype, weights.ne).value();
  product->weights_memory =
      TRY(packed_buffer_type().allocate(packed_buffer_type().allocation_size(weights)));
  place(weights, *product->weights_memory, 0);
  // A few rows at a time: the weights may be most of the memory that there is.
  const uint64_t row_bytes = weights.nb[1];
  const std::vector<std::byte> zeros(row_bytes * kRowsTogether);
  for (uint64_t done = 0; done < weights.size_bytes();) {
    const uint64_t count = std::min<uint64_t>(zeros.size(), weights.size_bytes() - done);
    TRY(product->weights_memory->write(weights, done, std::span(zeros).first(count)));
    done += count;
  }
  const uint64_t x_stride = uses_activation_blocks(dtype)
                                ? activation_row_bytes(n_in)
                                : static_cast<uint64_t>(n_in) * sizeof(float);
  const uint64_t x_bytes = x_stride * static_cast<uint64_t>(n_columns);
  const uint64_t y_stride = static_cast<uint64_t>(n_out) * sizeof(float);
  product->x = TRY(host_buffer_type().allocate(x_bytes));
  std::memset(product->x->base(), 0, x_bytes);
  product->y = TRY(host_buffer_type().allocate(y_stride * static_cast<uint64_t>(n_columns)));
  MatmulArgs& args = product->args;
  args.weights = weight_matrix(weights);
  args.x = product->x->base();
  args.x_stride = x_stride;
  args.y = product->y->base();
  args.y_stride = y_stride;
  return product;
}

// Products per second.
double product_rate(const ProbeOptions& options, ThreadPool& pool, const MatmulArgs& args,
                    int64_t n_columns, int spans) {
  const PieceGrid grid = plan_pieces(args.weights, n_columns, pool.thread_count());
  const MatmulKernels& kernels = matmul_kernels(options.isa);
  const RateSpans timing{.count = spans,
                         .seconds = options.span_seconds,
                         .share = options.core_quota.value_or(options.threads) / options.threads};
  return sustained_rate(
      timing, now_s, [&] { return options.stop.stop_requested(); },
      [&] {
        pool.run(grid.count, [&](int64_t piece, int) {
          run_matmul_piece(kernels, args, grid.piece(piece), {});
        });
      });
}

// Bytes of weights per second with one column, as decoding reads them.
Result<double> read_rate(const ProbeOptions& options, ThreadPool& pool) {
  constexpr int64_t kIn = 2048;
  constexpr int64_t kRowBytes = kIn / 32 * 18;  // Q4_0: 18 bytes for 32 weights
  const int64_t rows = static_cast<int64_t>(options.read_bytes) / kRowBytes;
  const int64_t n_out = std::max(rows / kRowsTogether, int64_t{1}) * kRowsTogether;
  const auto product = TRY(make_product(DType::q4_0, kIn, n_out, 1));
  constexpr int kSpans = 2;  // what plans go by
  return product_rate(options, pool, product->args, 1, kSpans) *
         static_cast<double>(product->weights.size_bytes());
}

// Multiply-adds per second, times two, of a product that stays in a core's cache.
Result<double> compute_rate(const ProbeOptions& options, ThreadPool& pool, DType dtype) {
  constexpr int64_t kIn = 1024;
  constexpr int64_t kOut = 512;
  constexpr int64_t kColumns = 128;
  const auto product = TRY(make_product(dtype, kIn, kOut, kColumns));
  return product_rate(options, pool, product->args, kColumns, 1) * 2 * double{kIn} * kOut *
         kColumns;
}

}  // namespace

Result<DeviceSpeed> probe_speed(const ProbeOptions& options) {
  ThreadPool pool(options.threads, options.cpus);
  const auto check_stop = [&] {
    return options.stop.stop_requested() ? cancelled("asked to end while the speed was measured")
                                         : ok_status();
  };
  DeviceSpeed speed;
  speed.read_bytes_per_s = TRY(read_rate(options, pool));
  TRY(check_stop());
  speed.int8_ops_per_s = TRY(compute_rate(options, pool, DType::q4_0));
  TRY(check_stop());
  speed.f32_ops_per_s = TRY(compute_rate(options, pool, DType::f32));
  TRY(check_stop());
  return speed;
}

}  // namespace strata::cpu
