// StageGraph: one graph of a stage, with its inputs, for one shape of batch.
//
// GraphCache keeps the graphs of the shapes seen last, so that a step like an earlier one builds
// nothing. Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <span>

#include "runtime/graph/graph.h"
#include "runtime/model/blocks.h"
#include "runtime/model/hparams.h"
#include "runtime/model/layer_range.h"

namespace strata {

// What a graph depends on. Sequences and table width are rounded up by rounded().
struct BatchShape {
  int32_t n_tokens = 0;
  int32_t n_outputs = 0;
  int32_t n_sequences = 0;   // rows of the block tables
  int32_t table_blocks = 0;  // entries of a row

  bool operator==(const BatchShape&) const = default;
  // Powers of two up to the bounds: a growing sequence needs another graph a few times only.
  BatchShape rounded(int32_t sequences_max, int32_t blocks_max) const;
};

struct StageGraph {
  BatchShape shape;
  Graph graph;
  GraphInputs inputs;
  Tensor* output = nullptr;
};

// Builds the graph of `range` for a batch of that shape. Only inputs that some node reads are made.
// Requires: the range is not empty of work for the shape.
std::unique_ptr<StageGraph> build_stage_graph(const Hparams& hparams, const LayerRange& range,
                                              const TensorProvider& tensors,
                                              const BatchShape& shape);

// Shapes of batches whose graphs a stage keeps: a few decode sizes and the prompt chunks in use.
inline constexpr size_t kGraphsKept = 32;

// Host memory of kGraphsKept graphs like the largest of these, with all that scheduler and backend
// keep for each: an upper bound by the number of nodes.
uint64_t kept_graphs_bytes(std::span<Graph* const> graphs);

class GraphCache {
 public:
  // `capacity` graphs at most; the one not used for longest goes first.
  explicit GraphCache(size_t capacity) : capacity_(capacity) {}

  // Null if it is not there. Marks it as used.
  StageGraph* find(const BatchShape& shape);
  // Adds a graph. If the cache was full, the oldest one is handed back: the caller drops what it
  // keeps of it elsewhere.
  std::unique_ptr<StageGraph> insert(std::unique_ptr<StageGraph> graph);
  size_t size() const { return graphs_.size(); }

 private:
  size_t capacity_;
  std::list<std::unique_ptr<StageGraph>> graphs_;  // used last first
};

}  // namespace strata
