// StageModel::estimate(): the bytes a stage will take, from descriptions alone.
//
// The same tables, allocators and graphs as loading uses, over tensors without memory; so what is
// estimated is what will be taken, but for what several buffers round up.
#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <unordered_map>

#include "runtime/base/checked_math.h"
#include "runtime/memory/described_buffer.h"
#include "runtime/model/stage_graph.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/stage_options.h"
#include "runtime/sched/compute_measure.h"

namespace strata {
namespace {

// Weights and caches as they will lie, in memory that is only described.
class DescribedTensors final : public TensorProvider {
 public:
  DescribedTensors(std::vector<PlannedTensor>& weights, int32_t layer_begin)
      : layer_begin_(layer_begin) {
    for (PlannedTensor& planned : weights) {
      describe(planned.tensor, *planned.memory, BufferUsage::weights);
      weights_.emplace(planned.tensor.name, &planned.tensor);
    }
  }
  void add_cache(KvTensors tensors, const BufferType& type) {
    KvTensors& added = caches_.emplace_back(std::move(tensors));
    describe(added.k, type, BufferUsage::any);
    describe(added.v, type, BufferUsage::any);
  }

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
  void describe(Tensor& tensor, const BufferType& type, BufferUsage usage) {
    auto& buffer = buffers_[{&type, usage}];
    if (!buffer) buffer = std::make_unique<DescribedBuffer>(type, usage);
    tensor.buffer = buffer.get();
  }

  int32_t layer_begin_;
  std::unordered_map<std::string_view, Tensor*> weights_;
  std::map<std::pair<const BufferType*, BufferUsage>, std::unique_ptr<DescribedBuffer>> buffers_;
  mutable std::deque<KvTensors> caches_;
};

// The estimate while it is made: every sum goes to a layer or an end, and to a device.
class Tally {
 public:
  Tally(const StageOptions& options, StageEstimate& estimate)
      : options_(options), estimate_(estimate) {
    const auto layers = static_cast<size_t>(options.range.count());
    estimate.layer_weights.resize(layers);
    estimate.layer_kv.resize(layers);
    for (size_t i = 0; i < options.devices.size(); ++i) {
      const DeviceMemory memory = device_memory(options, i);
      DeviceAccount& account = estimate.devices.emplace_back();
      account.device = options.devices[i]->name();
      account.total_bytes = memory.total_bytes;
      account.free_bytes = memory.free_bytes;
      account.layers.resize(layers);
    }
  }

  void add_weight(const PlannedTensor& planned) {
    const uint64_t bytes = planned.size_bytes;
    DeviceAccount& account = account_of(planned.device);
    switch (planned.source.part.kind) {
      case TensorPart::input:
        estimate_.input_weights += bytes;
        account.input_bytes += bytes;
        break;
      case TensorPart::output:
        estimate_.output_weights += bytes;
        account.output_bytes += bytes;
        break;
      case TensorPart::all_layers:
        estimate_.layer_weights.front() += bytes;
        account.shared_bytes += bytes;
        break;
      case TensorPart::layer: {
        const auto layer = static_cast<size_t>(planned.source.part.index - options_.range.begin);
        estimate_.layer_weights[layer] += bytes;
        account.layers[layer].weights_bytes += bytes;
        break;
      }
    }
  }
  void add_cache(size_t layer, const Device* device, uint64_t bytes) {
    estimate_.layer_kv[layer] += bytes;
    account_of(device).layers[layer].kv_bytes += bytes;
  }
  void add_compute(std::span<const uint64_t> bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      estimate_.compute += bytes[i];
      estimate_.devices[i].compute_bytes = bytes[i];
    }
  }

 private:
  DeviceAccount& account_of(const Device* device) {
    const auto found = std::find(options_.devices.begin(), options_.devices.end(), device);
    return estimate_.devices[static_cast<size_t>(found - options_.devices.begin())];
  }

  const StageOptions& options_;
  StageEstimate& estimate_;
};

struct ComputeNeed {
  std::vector<uint64_t> bytes;  // of each device
  uint64_t kept_graphs = 0;     // of them
};

Result<ComputeNeed> worst_compute(const Hparams& hparams, const StageOptions& options,
                                  const TensorProvider& tensors) {
  std::vector<std::unique_ptr<StageGraph>> stages;
  std::vector<Graph*> graphs;
  for (const BatchShape& shape : worst_shapes(options)) {
    stages.push_back(build_stage_graph(hparams, options.range, tensors, shape));
    graphs.push_back(&stages.back()->graph);
  }
  ComputeNeed need;
  need.bytes = TRY(measure_compute(graphs, options.devices, options.backend));
  need.kept_graphs = kept_graphs_bytes(graphs);
  need.bytes[host_device_index(options)] += need.kept_graphs;
  return need;
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
  std::vector<PlannedTensor> weights =
      TRY(plan_weights(file, hparams, range, placement, options.load.mapped));

  StageEstimate estimate;
  Tally tally(options, estimate);
  for (const PlannedTensor& planned : weights) tally.add_weight(planned);
  DescribedTensors tensors(weights, range.begin);
  for (int32_t layer = range.begin; layer < range.end; ++layer) {
    const auto index = static_cast<size_t>(layer - range.begin);
    const auto group = static_cast<size_t>(hparams.layer_groups[static_cast<size_t>(layer)]);
    KvTensors cache =
        TRY(kv_tensors(hparams, layer, options.kv.type, options.kv.group_blocks[group]));
    const BufferType& memory = placement.layers[index]->compute_buffer_type();
    tally.add_cache(index, placement.layers[index],
                    align_up(cache.k.size_bytes(), memory.alignment()) +
                        align_up(cache.v.size_bytes(), memory.alignment()));
    tensors.add_cache(std::move(cache), memory);
  }
  const ComputeNeed compute = TRY(worst_compute(hparams, options, tensors));
  tally.add_compute(compute.bytes);
  estimate.kept_graphs = compute.kept_graphs;
  return estimate;
}

}  // namespace strata
