// KvCache: the keys and values of a stage's layers, in blocks of 16 positions.
//
// Per layer two tensors, k {16 * head_dim_k * n_head_kv, n_blocks} and v {16 * head_dim_v *
// n_head_kv, n_blocks}, of the KV type; what lies where inside a block is the backend's own. Which
// block belongs to which sequence is the coordinator's to decide: ids mean the same on all stages.
// Source: PagedAttention (arXiv 2309.06180).
//
// Threads: externally synchronised (the stage thread).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/memory/buffer.h"
#include "runtime/model/hparams.h"
#include "runtime/model/layer_range.h"
#include "runtime/model/step.h"

namespace strata {

struct KvOptions {
  DType type = DType::f16;  // f32, f16, q8_0 or q4_0
  // Blocks of each KV group of the model, in the order of Hparams::kv_groups.
  std::vector<int32_t> group_blocks;
};

// "f32", "f16", "q8_0" or "q4_0". Errors: INVALID_ARGUMENT for another name.
Result<DType> kv_type_from_name(const std::string& name);

// Errors: INVALID_ARGUMENT for counts that are no positive number of blocks for each group.
Status check_kv_options(const Hparams& hparams, const KvOptions& options);

// Bytes that one block of a group takes on one layer. Errors: INVALID_ARGUMENT for a KV type that
// does not divide the block's elements, or is none of those above.
Result<uint64_t> kv_block_bytes_per_layer(const Hparams& hparams, DType type);

// The cache tensors of one layer as a cache of `blocks` blocks has them, not placed.
// Errors: as above.
struct KvTensors {
  Tensor k;
  Tensor v;
};
Result<KvTensors> kv_tensors(const Hparams& hparams, int32_t layer, DType type, int32_t blocks);

class KvCache {
 public:
  // Memory for the layers of the range, layer i in layer_devices[i - range.begin]'s compute memory.
  // Errors: RESOURCE_EXHAUSTED with need and have; INVALID_ARGUMENT for options that do not fit.
  static Result<std::unique_ptr<KvCache>> create(const Hparams& hparams, const LayerRange& range,
                                                 const KvOptions& options,
                                                 std::span<Device* const> layer_devices);

  // Requires: the layer is in the range.
  Tensor* k(int32_t layer) { return &k_[static_cast<size_t>(layer - begin_)]; }
  Tensor* v(int32_t layer) { return &v_[static_cast<size_t>(layer - begin_)]; }
  int32_t block_count(int32_t group) const { return group_blocks_[static_cast<size_t>(group)]; }
  uint64_t size_bytes() const { return size_bytes_; }

  // Copies one block on all layers of its group. Errors: INVALID_ARGUMENT for ids out of range.
  Status copy(const BlockCopy& copy);
  // Sets every byte of every block: tests fill with NaN to show that nothing stale is read.
  void fill(std::byte value);

 private:
  KvCache() = default;

  int32_t begin_ = 0;
  std::vector<int32_t> group_blocks_;
  std::vector<int32_t> layer_groups_;  // of the range's layers
  std::deque<Tensor> k_;
  std::deque<Tensor> v_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::byte> scratch_;  // one block, for copies
  uint64_t size_bytes_ = 0;
};

}  // namespace strata
