// RandomGraph: a seeded graph over weights, a cache and inputs, for tests that compare two ways of
// running the same thing. The same options give the same graph, weights and input data every time.
//
// Holds every kind of view (reshapes, slices, transposes, views of views of weights), tensors used
// twice by one node, nodes that nobody reads, sums of many, outputs in the middle, an input that is
// an output too, and the block cache. All values stay small, so that equal means equal bits.
//
// Threads: externally synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/memory/buffer.h"

namespace strata::testing {

struct RandomGraphOptions {
  uint64_t seed = 1;
  int node_count = 40;
  int64_t n_tokens = 3;
  int64_t width = 16;  // ne[0] of the residual-like tensors; a multiple of 8
};

class RandomGraph {
 public:
  explicit RandomGraph(const RandomGraphOptions& options);

  Graph& graph() { return graph_; }
  std::deque<Tensor>& weights() { return weights_; }
  // What to write into a weight or an input before a run.
  std::vector<std::byte> initial_bytes(const Tensor& tensor) const;

 private:
  Tensor* new_weight(const std::string& name, const Dims& ne);
  Tensor* pick();  // any tensor {width, n_tokens} so far
  void keep(Tensor* tensor) { pool_.push_back(tensor); }
  void add_random_node();
  void add_arithmetic(int kind);
  void add_views(int kind);
  void add_attention();
  int64_t number(int64_t below) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(below));
  }

  const RandomGraphOptions options_;
  std::mt19937_64 random_;
  Graph graph_;
  std::deque<Tensor> weights_;
  std::vector<Tensor*> pool_;
  Tensor* ids_ = nullptr;
  Tensor* positions_ = nullptr;
  Tensor* table_ = nullptr;  // {width, kTableRows}
  int attention_count_ = 0;
};

// The plain allocator to compare with: every tensor gets a buffer of its own, filled with `poison`.
std::vector<std::unique_ptr<Buffer>> place_one_by_one(Graph& graph, std::byte poison);
// Writes weights, caches and inputs.
void write_leaves(RandomGraph& random);
// Does so, and runs all nodes in order by the reference ops on host memory.
void run_on_host(RandomGraph& random);
// All outputs' bytes, in the graph's order.
std::vector<std::vector<std::byte>> output_bytes(const Graph& graph);
// Weights in host memory.
std::vector<std::unique_ptr<Buffer>> place_weights(RandomGraph& random, const BufferType& type);

}  // namespace strata::testing
