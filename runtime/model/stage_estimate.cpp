// StageModel::estimate(): the bytes a stage will take, from descriptions alone.
//
// The same tables, allocators and graphs as loading uses, over tensors without memory; so what is
// estimated is what will be taken, but for what several buffers round up.
#include <algorithm>
#include <deque>
#include <numeric>
#include <unordered_map>

#include "runtime/base/checked_math.h"
#include "runtime/memory/graph_allocator.h"
#include "runtime/model/stage_graph.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/stage_options.h"

namespace strata {
namespace {

class DescribedTensors final : public TensorProvider {
 public:
  DescribedTensors(std::vector<PlannedTensor>& weights, int32_t layer_begin)
      : layer_begin_(layer_begin) {
    for (PlannedTensor& planned : weights) weights_.emplace(planned.tensor.name, &planned.tensor);
  }
  void add_cache(KvTensors tensors) { caches_.push_back(std::move(tensors)); }

  Tensor* weight(std::string_view name) const override {
    const auto found = weights_.find(name);
    return found == weights_.end() ? nullptr : found->second;
  }
  Tensor* k_cache(int32_t layer) const override { return &cache(layer).k; }
  Tensor* v_cache(int32_t layer) const override { return &cache(layer).v; }

 private:
  KvTensors& cache(int32_t layer) const {
    return caches_[static_cast<size_t>(layer - layer_begin_)];
  }

  int32_t layer_begin_;
  std::unordered_map<std::string_view, Tensor*> weights_;
  mutable std::deque<KvTensors> caches_;
};

Result<uint64_t> worst_compute_bytes(const Hparams& hparams, const StageOptions& options,
                                     const TensorProvider& tensors) {
  const GraphAllocator allocator({&options.devices.front()->compute_buffer_type()});
  uint64_t most = 0;
  for (const BatchShape& shape : worst_shapes(options)) {
    const std::unique_ptr<StageGraph> stage =
        build_stage_graph(hparams, options.range, tensors, shape);
    const AllocationPlan plan =
        TRY(allocator.plan(allocation_request(stage->graph), UnplacedLeaves::counted_as_placed));
    most = std::max(most, plan.total_bytes());
  }
  return most;
}

}  // namespace

uint64_t StageEstimate::total() const {
  const uint64_t layers = std::accumulate(layer_weights.begin(), layer_weights.end(), uint64_t{0}) +
                          std::accumulate(layer_kv.begin(), layer_kv.end(), uint64_t{0});
  return layers + input_weights + output_weights + compute;
}

Result<StageEstimate> StageModel::estimate(const GgufFile& file, const StageOptions& options) {
  const Hparams hparams = TRY(read_hparams(file));
  TRY(check_stage_options(hparams, options));
  TRY(check_kv_options(hparams, options.kv));
  const LayerRange& range = options.range;
  const Placement placement = stage_placement(options);
  std::vector<PlannedTensor> weights = TRY(plan_weights(file, hparams, range, placement));

  StageEstimate estimate;
  estimate.layer_weights.resize(static_cast<size_t>(range.count()));
  estimate.layer_kv.resize(static_cast<size_t>(range.count()));
  for (const PlannedTensor& planned : weights) {
    switch (planned.source.part.kind) {
      case TensorPart::input:
        estimate.input_weights += planned.size_bytes;
        break;
      case TensorPart::output:
        estimate.output_weights += planned.size_bytes;
        break;
      case TensorPart::all_layers:
        estimate.layer_weights.front() += planned.size_bytes;
        break;
      case TensorPart::layer:
        estimate.layer_weights[static_cast<size_t>(planned.source.part.index - range.begin)] +=
            planned.size_bytes;
        break;
    }
  }
  DescribedTensors tensors(weights, range.begin);
  for (int32_t layer = range.begin; layer < range.end; ++layer) {
    const auto index = static_cast<size_t>(layer - range.begin);
    const auto group = static_cast<size_t>(hparams.layer_groups[static_cast<size_t>(layer)]);
    KvTensors cache =
        TRY(kv_tensors(hparams, layer, options.kv.type, options.kv.group_blocks[group]));
    const uint64_t alignment = placement.layers[index]->compute_buffer_type().alignment();
    estimate.layer_kv[index] =
        align_up(cache.k.size_bytes(), alignment) + align_up(cache.v.size_bytes(), alignment);
    tensors.add_cache(std::move(cache));
  }
  estimate.compute = TRY(worst_compute_bytes(hparams, options, tensors));
  return estimate;
}

}  // namespace strata
