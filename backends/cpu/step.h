// Step: one thing the CPU backend does in a run of a compiled graph.
//
// A plan (plan.h) turns the nodes into steps once; a run then walks them in order. A step keeps the
// addresses and shapes that it needs, found when it was made; it allocates nothing when it runs.
// Steps run on the backend's thread and hand pieces to its pool.
#pragma once

#include <cstdint>
#include <memory>

#include "backends/cpu/kernel_table.h"
#include "backends/cpu/kernels/matmul_kernels.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/tensor/tensor.h"

namespace strata::cpu {

struct RunContext {
  ThreadPool& pool;
  const KernelTable& kernels;
  const MatmulKernels& matmul;
  std::byte* workspace = nullptr;       // what steps hand to later steps; 64-byte aligned
  std::byte* thread_scratch = nullptr;  // one part for each thread
  uint64_t thread_scratch_bytes = 0;    // size of a part, a multiple of 64

  std::byte* scratch(int thread) const {
    return thread_scratch + static_cast<uint64_t>(thread) * thread_scratch_bytes;
  }
};

class Step {
 public:
  virtual ~Step() = default;
  // Errors: INVALID_ARGUMENT for inputs (ids, cells, positions) that are out of range.
  virtual Status run(const RunContext& context) = 0;
  // Bytes of workspace that only this step uses, while it runs, and where the plan put them.
  virtual uint64_t temporary_bytes() const { return 0; }
  virtual uint64_t thread_scratch_bytes() const { return 0; }
  uint64_t temporary_offset = 0;
};

// Work below this many element operations is not worth waking other threads for: a hand-over costs
// about a microsecond, in which one core does some 10,000 simple operations.
inline constexpr int64_t kMinPieceWork = 16384;

// Into how many pieces to cut `items` of `work_per_item` operations each.
inline int64_t piece_count(int64_t items, int64_t work_per_item, int threads) {
  if (threads <= 1) return items > 0 ? 1 : 0;
  const int64_t worthwhile = items * work_per_item / kMinPieceWork + 1;
  const int64_t wanted = worthwhile < threads * 4 ? worthwhile : threads * 4;
  return wanted < items ? wanted : items;
}

// The address of a row of a tensor by its number, strides obeyed; dimensions of length 1 repeat.
class RowAddress {
 public:
  // Rows are numbered over `shape`, of which the tensor is the whole or a repeated part.
  RowAddress(const Tensor& tensor, const Dims& shape) : data_(tensor.data), ne_(shape) {
    for (int i = 1; i < kMaxDims; ++i) nb_[i] = tensor.ne[i] == shape[i] ? tensor.nb[i] : 0;
  }
  std::byte* bytes(int64_t row) const {
    const int64_t i1 = row % ne_[1];
    const int64_t rest = row / ne_[1];
    return data_ + static_cast<uint64_t>(i1) * nb_[1] +
           static_cast<uint64_t>(rest % ne_[2]) * nb_[2] +
           static_cast<uint64_t>(rest / ne_[2]) * nb_[3];
  }
  float* floats(int64_t row) const { return reinterpret_cast<float*>(bytes(row)); }

 private:
  std::byte* data_;
  Dims ne_;
  Strides nb_{};
};

// True for F32 tensors whose rows are dense, which is what most steps read.
inline bool has_float_rows(const Tensor& tensor) {
  return tensor.dtype == DType::f32 && (tensor.nb[0] == sizeof(float) || tensor.ne[0] == 1);
}

}  // namespace strata::cpu
