// Graph: the nodes of one computation in an order in which they can run.
//
// Builders (ops.h) append a node when they make it, so sources always stand before their users and
// the list is topological by construction. The graph owns the tensors it makes, inputs and
// intermediate results alike, as metadata only; weights and caches belong to others and are only
// pointed at. Memory for the results comes later, from the graph allocator or the scheduler.
//
// Threads: externally synchronised. Tensors stay where they are until the graph is destroyed.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace strata {

// A part of a graph that one backend runs: consecutive nodes, views included.
struct GraphView {
  std::span<Tensor* const> nodes;
  // Names this list of nodes with this placement of their data. A backend may keep what it
  // prepared under the number and use it again when the number comes back; 0 means do not keep.
  uint64_t uid = 0;
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // A leaf written by the caller before each run, such as token ids. Dense.
  Tensor* new_input(std::string name, DType dtype, const Dims& ne);
  // A node; used by the builders in ops.h. Registers sources that are leaves of others.
  Tensor* new_node(Op op, DType dtype, const Dims& ne, std::vector<Tensor*> sources,
                   OpParams params = {});
  // A view node: no memory of its own, strides `nb`, `offset` bytes into `of`.
  Tensor* new_view(Tensor* of, const Dims& ne, const Strides& nb, uint64_t offset);
  // One more source of a node that was just made.
  void add_source(Tensor* node, Tensor* source);
  // Keeps the tensor's memory from being reused, so that the caller can read it after the run.
  void mark_output(Tensor* tensor);

  std::span<Tensor* const> nodes() const { return nodes_; }
  // Every tensor without an op that a node reads, each once: inputs, weights, caches.
  std::span<Tensor* const> leaves() const { return leaves_; }
  // The graph's own inputs, in the order of their making.
  std::span<Tensor* const> inputs() const { return inputs_; }
  std::span<Tensor* const> outputs() const { return outputs_; }

  // Expires with the graph: whoever keeps something for a graph by its address can tell that the
  // address now belongs to another one.
  std::weak_ptr<const void> lifetime() const { return lifetime_; }

  // The first node or input of that name, or null.
  Tensor* find(std::string_view name) const;

 private:
  void add_leaf(Tensor* tensor);

  std::shared_ptr<const void> lifetime_ = std::make_shared<char>();
  std::deque<Tensor> arena_;  // a deque does not move what it holds
  std::vector<Tensor*> nodes_;
  std::vector<Tensor*> leaves_;
  std::vector<Tensor*> inputs_;
  std::vector<Tensor*> outputs_;
  std::vector<const Tensor*> known_leaves_;  // sorted, for add_leaf
};

}  // namespace strata
