#include "runtime/model/stage_graph.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"

namespace strata {
namespace {

// The table width below which rounding is not worth another graph: 256 positions.
constexpr int32_t kTableBlocksMin = 16;
// What a node takes in its graph, in the scheduler's plan and in the backend's compiled one:
// measured 870 to 930 bytes over models of 3 to 30 layers, dense and of experts.
constexpr uint64_t kNodeBytes = 1024;

int32_t round_up(int32_t value, int32_t max) {
  return std::min(static_cast<int32_t>(std::bit_ceil(static_cast<uint32_t>(value))), max);
}

GraphInputs make_inputs(Graph& graph, const Hparams& hparams, const LayerRange& range,
                        const BatchShape& shape) {
  const Dims per_token = {shape.n_tokens, 1, 1, 1};
  GraphInputs inputs;
  if (range.has_embedding) {
    inputs.tokens = graph.new_input("tokens", DType::i32, per_token);
  } else {
    inputs.activations =
        graph.new_input("activations", DType::f32, {hparams.n_embd, shape.n_tokens, 1, 1});
  }
  if (range.count() > 0 || (range.has_embedding && !hparams.uses_rope)) {
    inputs.positions = graph.new_input("positions", DType::i32, per_token);
  }
  if (range.has_head && shape.n_outputs > 0) {
    inputs.outputs = graph.new_input("outputs", DType::i32, {shape.n_outputs, 1, 1, 1});
  }
  inputs.block_tables.resize(hparams.kv_groups.size());
  inputs.cells.resize(hparams.kv_groups.size());
  if (range.count() == 0) return inputs;

  inputs.sequence = graph.new_input("sequence", DType::i32, per_token);
  for (int32_t layer = range.begin; layer < range.end; ++layer) {
    const auto group = static_cast<size_t>(hparams.layer_groups[static_cast<size_t>(layer)]);
    if (inputs.cells[group] != nullptr) continue;
    const std::string suffix = "." + std::to_string(group);
    inputs.block_tables[group] = graph.new_input("block_table" + suffix, DType::i32,
                                                 {shape.table_blocks, shape.n_sequences, 1, 1});
    inputs.cells[group] = graph.new_input("cells" + suffix, DType::i32, per_token);
  }
  return inputs;
}

}  // namespace

BatchShape BatchShape::rounded(int32_t sequences_max, int32_t blocks_max) const {
  BatchShape shape = *this;
  shape.n_sequences = round_up(n_sequences, sequences_max);
  shape.table_blocks = round_up(std::max(table_blocks, kTableBlocksMin), blocks_max);
  return shape;
}

std::unique_ptr<StageGraph> build_stage_graph(const Hparams& hparams, const LayerRange& range,
                                              const TensorProvider& tensors,
                                              const BatchShape& shape) {
  STRATA_CHECK(range.has_embedding || range.count() > 0 || shape.n_outputs > 0,
               "a graph without work");
  auto stage = std::make_unique<StageGraph>();
  stage->shape = shape;
  ModelBuilder builder{stage->graph, hparams, tensors,
                       make_inputs(stage->graph, hparams, range, shape)};
  stage->output = build_stage(builder, range);
  stage->inputs = builder.inputs;
  return stage;
}

uint64_t kept_graphs_bytes(std::span<Graph* const> graphs) {
  size_t nodes = 0;
  for (const Graph* graph : graphs) nodes = std::max(nodes, graph->nodes().size());
  return kGraphsKept * nodes * kNodeBytes;
}

StageGraph* GraphCache::find(const BatchShape& shape) {
  const auto found = std::find_if(graphs_.begin(), graphs_.end(),
                                  [&](const auto& graph) { return graph->shape == shape; });
  if (found == graphs_.end()) return nullptr;
  graphs_.splice(graphs_.begin(), graphs_, found);
  return graphs_.front().get();
}

std::unique_ptr<StageGraph> GraphCache::insert(std::unique_ptr<StageGraph> graph) {
  graphs_.push_front(std::move(graph));
  if (graphs_.size() <= capacity_) return nullptr;
  std::unique_ptr<StageGraph> oldest = std::move(graphs_.back());
  graphs_.pop_back();
  return oldest;
}

}  // namespace strata
