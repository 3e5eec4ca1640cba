#include "backends/cpu/cpu_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/matmul.h"
#include "backends/cpu/packed_buffer_type.h"
#include "runtime/base/thread_pool.h"
#include "runtime/memory/host_buffer.h"

namespace strata::cpu {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Rounds per second of `round`: the best of those that fit into the time, so that a moment in which
// another process ran does not count.
template <typename Round>
double best_rate(double seconds, const Round& round) {
  round();  // touches memory, wakes threads
  const double end = now_s() + seconds;
  double best = 0;
  double start = now_s();
  do {
    round();
    const double stop = now_s();
    best = std::max(best, 1 / std::max(stop - start, 1e-9));
    start = stop;
  } while (start < end);
  return best;
}

// The sum of 8-byte words: four independent chains, which any compiler keeps ahead of memory.
uint64_t sum_words(const std::byte* data, uint64_t bytes) {
  uint64_t sums[4] = {};
  for (uint64_t i = 0; i + 32 <= bytes; i += 32) {
    uint64_t words[4];
    std::memcpy(words, data + i, sizeof words);
    for (int lane = 0; lane < 4; ++lane) sums[lane] += words[lane];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

Result<double> read_rate(const ProbeOptions& options, ThreadPool& pool) {
  auto buffer = TRY(host_buffer_type().allocate(options.read_bytes));
  constexpr int64_t kPieces = 64;
  const uint64_t piece_bytes = options.read_bytes / kPieces;
  // Memory that was never written is one page of zeros, read from the cache.
  pool.run(kPieces, [&](int64_t piece, int) {
    std::memset(buffer->base() + static_cast<uint64_t>(piece) * piece_bytes, 1, piece_bytes);
  });
  std::atomic<uint64_t> sum{0};
  const double rate = best_rate(options.seconds, [&] {
    pool.run(kPieces, [&](int64_t piece, int) {
      sum += sum_words(buffer->base() + static_cast<uint64_t>(piece) * piece_bytes, piece_bytes);
    });
  });
  return rate * static_cast<double>(options.read_bytes);
}

// Multiply-adds per second, times two, of a product that stays in a core's cache.
Result<double> product_rate(const ProbeOptions& options, ThreadPool& pool, DType dtype) {
  constexpr int64_t kIn = 1024;
  constexpr int64_t kOut = 512;
  constexpr int64_t kColumns = 128;
  Tensor weights;
  weights.name = "probe";
  weights.dtype = dtype;
  weights.ne = {kIn, kOut, 1, 1};
  weights.nb = dense_strides(dtype, weights.ne).value();
  auto memory = TRY(packed_buffer_type().allocate(packed_buffer_type().allocation_size(weights)));
  place(weights, *memory, 0);
  const std::vector<std::byte> zeros(weights.size_bytes());
  TRY(memory->write(weights, 0, zeros));

  const uint64_t x_stride =
      uses_activation_blocks(dtype) ? activation_row_bytes(kIn) : uint64_t{kIn} * sizeof(float);
  auto x = TRY(host_buffer_type().allocate(x_stride * kColumns));
  auto y = TRY(host_buffer_type().allocate(uint64_t{kOut} * kColumns * sizeof(float)));
  MatmulArgs args;
  args.weights = weight_matrix(weights);
  args.x = x->base();
  args.x_stride = x_stride;
  args.y = y->base();
  args.y_stride = uint64_t{kOut} * sizeof(float);
  const PieceGrid grid = plan_pieces(args.weights, kColumns, pool.thread_count());
  const MatmulKernels& kernels = matmul_kernels_of(options.isa);
  const double rate = best_rate(options.seconds, [&] {
    pool.run(grid.count,
             [&](int64_t piece, int) { run_matmul_piece(kernels, args, grid.piece(piece), {}); });
  });
  return rate * 2 * double{kIn} * kOut * kColumns;
}

}  // namespace

Result<DeviceSpeed> probe_speed(const ProbeOptions& options) {
  ThreadPool pool(options.threads);
  DeviceSpeed speed;
  speed.read_bytes_per_s = TRY(read_rate(options, pool));
  speed.int8_ops_per_s = TRY(product_rate(options, pool, DType::q4_0));
  speed.f32_ops_per_s = TRY(product_rate(options, pool, DType::f32));
  return speed;
}

}  // namespace strata::cpu
