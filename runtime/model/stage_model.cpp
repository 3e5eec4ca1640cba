#include "runtime/model/stage_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/graph/ops.h"
#include "runtime/model/stage_graph.h"
#include "runtime/model/stage_options.h"
#include "runtime/sched/scheduler.h"

namespace strata {
namespace {

constexpr int32_t kBlock = ops::kKvBlockPositions;

template <typename T>
std::span<const std::byte> bytes_of(std::span<const T> values) {
  return std::as_bytes(values);
}

class StageTensors final : public TensorProvider {
 public:
  StageTensors(const Weights& weights, KvCache& cache) : weights_(weights), cache_(cache) {}
  Tensor* weight(std::string_view name) const override { return weights_.find(name); }
  Tensor* k_cache(int32_t layer) const override { return cache_.k(layer); }
  Tensor* v_cache(int32_t layer) const override { return cache_.v(layer); }

 private:
  const Weights& weights_;
  KvCache& cache_;
};

}  // namespace

struct StageModel::Impl {
  std::shared_ptr<const GgufFile> file;
  Hparams hparams;
  StageOptions options;
  std::shared_ptr<Weights> weights;
  std::unique_ptr<KvCache> cache;
  std::unique_ptr<StageTensors> tensors;
  // Graphs go before the scheduler that planned them.
  std::unique_ptr<Scheduler> scheduler;
  GraphCache graphs{kGraphsKept};
  uint64_t graphs_built = 0;
  uint64_t graphs_bytes = 0;  // counted for the graphs that are kept
  std::vector<float> output;
  std::vector<int32_t> staging;  // a group's table or cells, while it is written
  // {the batch's sequences}: their first and last position, while the batch is checked.
  std::vector<int32_t> first;
  std::vector<int32_t> last;

  bool has_work(const StageBatch& batch) const {
    return !batch.positions.empty() &&
           (options.range.count() > 0 || options.range.has_embedding || !batch.outputs.empty());
  }
  int32_t table_blocks_max() const { return strata::table_blocks_max(options); }

  Status reserve();
  Status check(const StageBatch& batch);
  Status check_tokens(const StageBatch& batch) const;
  Status check_tables(const StageBatch& batch);
  Result<StageGraph*> graph_for(const BatchShape& shape);
  Status set_inputs(const StageBatch& batch, StageGraph& stage);
  Status set_group_inputs(const StageBatch& batch, StageGraph& stage, size_t group);
};

Status StageModel::Impl::reserve() {
  std::vector<std::unique_ptr<StageGraph>> stages;
  std::vector<Graph*> measured;
  for (const BatchShape& shape : worst_shapes(options)) {
    stages.push_back(build_stage_graph(hparams, options.range, *tensors, shape));
    measured.push_back(&stages.back()->graph);
  }
  graphs_bytes = strata::kept_graphs_bytes(measured);
  return scheduler->reserve(measured);
}

Status StageModel::Impl::check_tokens(const StageBatch& batch) const {
  const size_t n_tokens = batch.positions.size();
  if (options.range.has_embedding) {
    if (batch.tokens.size() != n_tokens) {
      return invalid_argument(
          fmt::format("{} token ids for {} positions", batch.tokens.size(), n_tokens));
    }
    for (const int32_t id : batch.tokens) {
      if (id >= 0 && id < hparams.n_vocab) continue;
      return invalid_argument(
          fmt::format("token id {} is outside the vocabulary of {}", id, hparams.n_vocab));
    }
  } else if (batch.activations.size() != n_tokens * static_cast<size_t>(hparams.n_embd)) {
    return invalid_argument(fmt::format("activations of {} values, {} tokens of {} make {}",
                                        batch.activations.size(), n_tokens, hparams.n_embd,
                                        n_tokens * static_cast<size_t>(hparams.n_embd)));
  }
  return ok_status();
}

// Every block that a token reads or writes must be one of the cache's.
Status StageModel::Impl::check_tables(const StageBatch& batch) {
  first.assign(batch.sequences.size(), INT32_MAX);
  last.assign(batch.sequences.size(), -1);
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    const auto s = static_cast<size_t>(batch.sequence[i]);
    first[s] = std::min(first[s], batch.positions[i]);
    last[s] = std::max(last[s], batch.positions[i]);
  }
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    if (batch.sequences[s].tables.size() != hparams.kv_groups.size()) {
      return invalid_argument(fmt::format("block tables of {} KV groups, the model has {}",
                                          batch.sequences[s].tables.size(),
                                          hparams.kv_groups.size()));
    }
    for (size_t g = 0; g < hparams.kv_groups.size(); ++g) {
      const std::span<const int32_t> table = batch.sequences[s].tables[g];
      const int32_t window = hparams.kv_groups[g].window;
      const int32_t seen = window > 0 ? std::max(0, first[s] - window + 1) : 0;
      for (int32_t b = seen / kBlock; last[s] >= 0 && b <= last[s] / kBlock; ++b) {
        const int32_t id =
            static_cast<size_t>(b) < table.size() ? table[static_cast<size_t>(b)] : -1;
        if (id >= 0 && id < cache->block_count(static_cast<int32_t>(g))) continue;
        return invalid_argument(
            fmt::format("block {} of KV group {} at table entry {} is none of the {} blocks", id, g,
                        b, cache->block_count(static_cast<int32_t>(g))));
      }
    }
  }
  return ok_status();
}

Status StageModel::Impl::check(const StageBatch& batch) {
  const size_t n_tokens = batch.positions.size();
  if (n_tokens > static_cast<size_t>(options.max_batch_tokens)) {
    return invalid_argument(
        fmt::format("{} tokens in a batch, at most {}", n_tokens, options.max_batch_tokens));
  }
  if (batch.sequences.size() > static_cast<size_t>(options.max_sequences)) {
    return invalid_argument(fmt::format("{} sequences in a batch, at most {}",
                                        batch.sequences.size(), options.max_sequences));
  }
  if (batch.sequence.size() != n_tokens) {
    return invalid_argument(
        fmt::format("{} sequence numbers for {} tokens", batch.sequence.size(), n_tokens));
  }
  TRY(check_tokens(batch));
  for (size_t i = 0; i < n_tokens; ++i) {
    if (batch.positions[i] < 0 || batch.positions[i] >= options.max_context) {
      return invalid_argument(fmt::format("position {} is outside the context of {}",
                                          batch.positions[i], options.max_context));
    }
    if (batch.sequence[i] < 0 || static_cast<size_t>(batch.sequence[i]) >= batch.sequences.size()) {
      return invalid_argument(fmt::format("sequence number {}, the batch has {}", batch.sequence[i],
                                          batch.sequences.size()));
    }
  }
  for (size_t i = 0; i < batch.outputs.size(); ++i) {
    const int32_t least = i == 0 ? 0 : batch.outputs[i - 1] + 1;
    if (batch.outputs[i] < least || static_cast<size_t>(batch.outputs[i]) >= n_tokens) {
      return invalid_argument(fmt::format("output index {} of {} tokens, must be ascending",
                                          batch.outputs[i], n_tokens));
    }
  }
  return check_tables(batch);
}

Result<StageGraph*> StageModel::Impl::graph_for(const BatchShape& shape) {
  if (StageGraph* known = graphs.find(shape)) return known;
  std::unique_ptr<StageGraph> built = build_stage_graph(hparams, options.range, *tensors, shape);
  StageGraph* stage = built.get();
  ++graphs_built;
  graphs.insert(std::move(built));
  return stage;
}

Status StageModel::Impl::set_group_inputs(const StageBatch& batch, StageGraph& stage,
                                          size_t group) {
  const auto width = static_cast<size_t>(stage.shape.table_blocks);
  staging.assign(width * static_cast<size_t>(stage.shape.n_sequences), -1);
  for (size_t s = 0; s < batch.sequences.size(); ++s) {
    const std::span<const int32_t> table = batch.sequences[s].tables[group];
    std::copy_n(table.begin(), std::min(width, table.size()),
                staging.begin() + static_cast<ptrdiff_t>(s * width));
  }
  TRY(scheduler->set_input(*stage.inputs.block_tables[group],
                           bytes_of(std::span<const int32_t>(staging))));
  staging.clear();
  for (size_t i = 0; i < batch.positions.size(); ++i) {
    const auto& table = batch.sequences[static_cast<size_t>(batch.sequence[i])].tables[group];
    const int32_t position = batch.positions[i];
    staging.push_back(table[static_cast<size_t>(position / kBlock)] * kBlock + position % kBlock);
  }
  return scheduler->set_input(*stage.inputs.cells[group],
                              bytes_of(std::span<const int32_t>(staging)));
}

Status StageModel::Impl::set_inputs(const StageBatch& batch, StageGraph& stage) {
  const GraphInputs& inputs = stage.inputs;
  if (inputs.tokens != nullptr) TRY(scheduler->set_input(*inputs.tokens, bytes_of(batch.tokens)));
  if (inputs.activations != nullptr) {
    TRY(scheduler->set_input(*inputs.activations, bytes_of(batch.activations)));
  }
  if (inputs.positions != nullptr) {
    TRY(scheduler->set_input(*inputs.positions, bytes_of(batch.positions)));
  }
  if (inputs.sequence != nullptr) {
    TRY(scheduler->set_input(*inputs.sequence, bytes_of(batch.sequence)));
  }
  if (inputs.outputs != nullptr) {
    TRY(scheduler->set_input(*inputs.outputs, bytes_of(batch.outputs)));
  }
  for (size_t group = 0; group < inputs.cells.size(); ++group) {
    if (inputs.cells[group] != nullptr) TRY(set_group_inputs(batch, stage, group));
  }
  return ok_status();
}

StageModel::StageModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StageModel::~StageModel() = default;

Result<std::unique_ptr<StageModel>> StageModel::load(std::shared_ptr<const GgufFile> file,
                                                     const StageOptions& wanted,
                                                     TensorSource* source) {
  const Hparams hparams = TRY(read_hparams(*file));
  StageOptions options = wanted;
  TRY(check_stage_options(hparams, options));
  TRY(assign_devices(*file, options));
  std::shared_ptr<Weights> weights = TRY(
      Weights::load(file, hparams, options.range, stage_placement(options), source, options.load));
  return create(std::move(file), std::move(weights), options);
}

Result<std::unique_ptr<StageModel>> StageModel::create(std::shared_ptr<const GgufFile> file,
                                                       std::shared_ptr<Weights> weights,
                                                       const StageOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->hparams = TRY(read_hparams(*file));
  TRY(check_stage_options(impl->hparams, options));
  impl->file = std::move(file);
  impl->options = options;
  impl->weights = std::move(weights);
  impl->cache = TRY(
      KvCache::create(impl->hparams, options.range, options.kv, stage_placement(options).layers));
  impl->tensors = std::make_unique<StageTensors>(*impl->weights, *impl->cache);
  std::vector<std::unique_ptr<Backend>> backends;
  for (const Device* device : options.devices) {
    std::unique_ptr<Backend> backend = TRY(device->create_backend(options.backend));
    backends.push_back(std::move(backend));
  }
  impl->scheduler = TRY(Scheduler::create(std::move(backends)));
  TRY(impl->reserve());
  return std::unique_ptr<StageModel>(new StageModel(std::move(impl)));
}

const Hparams& StageModel::hparams() const { return impl_->hparams; }
const StageOptions& StageModel::options() const { return impl_->options; }
KvCache& StageModel::kv_cache() { return *impl_->cache; }
uint64_t StageModel::weights_bytes() const { return impl_->weights->size_bytes(); }
uint64_t StageModel::cache_bytes() const { return impl_->cache->size_bytes(); }

uint64_t StageModel::compute_bytes() const {
  uint64_t sum = impl_->graphs_bytes;
  for (const SchedulerMemory& memory : impl_->scheduler->memory()) sum += memory.compute_bytes;
  return sum;
}

uint64_t StageModel::kept_graphs_bytes() const { return impl_->graphs_bytes; }
uint64_t StageModel::graphs_built() const { return impl_->graphs_built; }

Result<std::span<const float>> StageModel::run(const StageBatch& batch) {
  TRY(impl_->check(batch));
  if (!impl_->has_work(batch)) return std::span<const float>();
  const int32_t last = *std::max_element(batch.positions.begin(), batch.positions.end());
  const BatchShape exact = {static_cast<int32_t>(batch.positions.size()),
                            static_cast<int32_t>(batch.outputs.size()),
                            static_cast<int32_t>(batch.sequences.size()), last / kBlock + 1};
  StageGraph* stage =
      TRY(impl_->graph_for(exact.rounded(impl_->options.max_sequences, impl_->table_blocks_max())));
  TRY(impl_->scheduler->prepare(stage->graph));
  TRY(impl_->set_inputs(batch, *stage));
  TRY(impl_->scheduler->compute(stage->graph));
  if (impl_->options.range.has_head && batch.outputs.empty()) return std::span<const float>();
  impl_->output.resize(static_cast<size_t>(stage->output->element_count()));
  TRY(impl_->scheduler->read_output(*stage->output,
                                    std::as_writable_bytes(std::span<float>(impl_->output))));
  TRY(impl_->weights->check_unchanged());
  return std::span<const float>(impl_->output);
}

}  // namespace strata
