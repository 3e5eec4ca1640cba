#include "runtime/model/kv_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/graph/ops.h"
#include "runtime/memory/linear_allocator.h"

namespace strata {
namespace {

constexpr int32_t kQuantisedHeadDimMin = 32;

bool is_kv_type(DType type) {
  return type == DType::f32 || type == DType::f16 || type == DType::q8_0 || type == DType::q4_0;
}

// A cache tensor {block_elements, blocks}, not placed.
Result<Tensor> cache_tensor(std::string name, DType type, int64_t block_elements, int32_t blocks) {
  Tensor tensor;
  tensor.name = std::move(name);
  tensor.dtype = type;
  tensor.ne = {block_elements, blocks, 1, 1};
  const std::optional<Strides> nb = dense_strides(type, tensor.ne);
  if (!nb) {
    return invalid_argument(fmt::format("a KV cache {} of type {} is too large, or no whole number "
                                        "of quant blocks",
                                        shape_text(tensor.ne), dtype_name(type)),
                            "try --kv-type f16");
  }
  tensor.nb = *nb;
  return tensor;
}

}  // namespace

Result<DType> kv_type_from_name(const std::string& name) {
  const std::optional<DType> type = dtype_from_name(name);
  if (type && (*type == DType::f32 || *type == DType::f16 || *type == DType::q8_0 ||
               *type == DType::q4_0)) {
    return *type;
  }
  return invalid_argument(fmt::format("KV type '{}' is not known", name),
                          "f32, f16, q8_0 and q4_0 are");
}

Status check_kv_options(const Hparams& hparams, const KvOptions& options) {
  if (options.group_blocks.size() != hparams.kv_groups.size()) {
    return invalid_argument(fmt::format("block counts for {} KV groups, the model has {}",
                                        options.group_blocks.size(), hparams.kv_groups.size()));
  }
  constexpr int32_t kBlocksMax = INT32_MAX / ops::kKvBlockPositions;
  for (const int32_t blocks : options.group_blocks) {
    if (blocks < 1 || blocks > kBlocksMax) {
      return invalid_argument(
          fmt::format("{} KV blocks in a group, must be 1 to {}", blocks, kBlocksMax));
    }
  }
  return ok_status();
}

Result<KvTensors> kv_tensors(const Hparams& hparams, int32_t layer, DType type, int32_t blocks) {
  if (!is_kv_type(type)) {
    return invalid_argument(fmt::format("KV type {} is not supported", dtype_name(type)),
                            "f32, f16, q8_0 and q4_0 are");
  }
  // A head's values share scales by 32; smaller heads would pay more for scales than they save.
  const int32_t head_dim = std::min(hparams.head_dim_k, hparams.head_dim_v);
  const bool is_odd = hparams.head_dim_k % 2 != 0 || hparams.head_dim_v % 2 != 0;
  if (dtype_traits(type).quantised && (head_dim < kQuantisedHeadDimMin || is_odd)) {
    return invalid_argument(
        fmt::format("KV type {} needs an even head size of {} or more, the model's is {}",
                    dtype_name(type), kQuantisedHeadDimMin, head_dim),
        "use --kv-type f16");
  }
  KvTensors tensors;
  tensors.k =
      TRY(cache_tensor(fmt::format("kv.{}.k", layer), type, hparams.k_block_elements(), blocks));
  tensors.v =
      TRY(cache_tensor(fmt::format("kv.{}.v", layer), type, hparams.v_block_elements(), blocks));
  return tensors;
}

Result<uint64_t> kv_block_bytes_per_layer(const Hparams& hparams, DType type) {
  const KvTensors one = TRY(kv_tensors(hparams, 0, type, 1));
  return one.k.size_bytes() + one.v.size_bytes();
}

Result<std::unique_ptr<KvCache>> KvCache::create(const Hparams& hparams, const LayerRange& range,
                                                 const KvOptions& options,
                                                 std::span<Device* const> layer_devices) {
  STRATA_CHECK(layer_devices.size() == static_cast<size_t>(range.count()), "a device per layer");
  TRY(check_kv_options(hparams, options));

  std::unique_ptr<KvCache> cache(new KvCache());
  cache->begin_ = range.begin;
  cache->group_blocks_ = options.group_blocks;
  std::vector<std::pair<const BufferType*, LinearAllocator>> pools;
  for (int32_t layer = range.begin; layer < range.end; ++layer) {
    const int32_t group = hparams.layer_groups[static_cast<size_t>(layer)];
    const int32_t blocks = options.group_blocks[static_cast<size_t>(group)];
    cache->layer_groups_.push_back(group);
    KvTensors tensors = TRY(kv_tensors(hparams, layer, options.type, blocks));
    cache->k_.push_back(std::move(tensors.k));
    cache->v_.push_back(std::move(tensors.v));
    const BufferType& type =
        layer_devices[static_cast<size_t>(layer - range.begin)]->compute_buffer_type();
    auto pool = std::find_if(pools.begin(), pools.end(),
                             [&](const auto& entry) { return entry.first == &type; });
    if (pool == pools.end()) {
      pools.emplace_back(&type, LinearAllocator(type));
      pool = std::prev(pools.end());
    }
    pool->second.add(cache->k_.back());
    pool->second.add(cache->v_.back());
  }
  for (auto& [type, allocator] : pools) {
    cache->size_bytes_ += allocator.total_bytes();
    Result<std::vector<std::unique_ptr<Buffer>>> buffers = allocator.allocate(BufferUsage::any);
    if (!buffers.ok()) {
      return buffers.status()
          .with_context("KV cache")
          .with_hint("lower the context or the number of sequences, or use --kv-type q8_0");
    }
    std::move(buffers->begin(), buffers->end(), std::back_inserter(cache->buffers_));
  }
  return cache;
}

Status KvCache::copy(const BlockCopy& copy) {
  if (copy.group >= group_blocks_.size()) {
    return invalid_argument(fmt::format("block copy in KV group {}, the model has {}", copy.group,
                                        group_blocks_.size()));
  }
  const int32_t blocks = group_blocks_[copy.group];
  if (copy.from < 0 || copy.from >= blocks || copy.to < 0 || copy.to >= blocks) {
    return invalid_argument(fmt::format("block copy from {} to {}, KV group {} has {} blocks",
                                        copy.from, copy.to, copy.group, blocks));
  }
  for (size_t i = 0; i < layer_groups_.size(); ++i) {
    if (layer_groups_[i] != static_cast<int32_t>(copy.group)) continue;
    for (const Tensor* tensor : {&k_[i], &v_[i]}) {
      scratch_.resize(tensor->nb[1]);
      TRY(tensor->buffer->read(*tensor, static_cast<uint64_t>(copy.from) * tensor->nb[1],
                               scratch_));
      TRY(tensor->buffer->write(*tensor, static_cast<uint64_t>(copy.to) * tensor->nb[1], scratch_));
    }
  }
  return ok_status();
}

void KvCache::fill(std::byte value) {
  for (const std::unique_ptr<Buffer>& buffer : buffers_) buffer->fill(value);
}

}  // namespace strata
