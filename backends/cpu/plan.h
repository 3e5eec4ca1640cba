// Plan: the steps of a compiled graph.
//
// Compiling drops the views, rounds each product's activations once for all products that read
// them, makes one step of neighbouring products with the same activations and one of neighbouring
// steps that go token by token (item_chain.h), makes one table for all ropes of the same kind, and
// lays out the workspace in which steps leave things for each other.
// A run then allocates nothing and looks at no node.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/step.h"
#include "runtime/graph/graph.h"

namespace strata::cpu {

// True if a plan can contain the node: its op, types and strides have a step.
bool can_run(const Tensor& node);

class Plan {
 public:
  // Requires: all tensors are placed in memory that the CPU device supports; to ask for sizes
  // alone, none need be (which steps are joined depends on addresses, sizes do not). Errors:
  // UNIMPLEMENTED with the node, for one that can_run() refuses.
  static Result<std::unique_ptr<Plan>> compile(const GraphView& graph, int threads);

  // Errors: those of the steps.
  Status run(const RunContext& context) const;

  uint64_t workspace_bytes() const { return workspace_bytes_; }
  uint64_t thread_scratch_bytes() const { return thread_scratch_bytes_; }
  size_t step_count() const { return steps_.size(); }

 private:
  friend class PlanBuilder;
  std::vector<std::unique_ptr<Step>> steps_;
  uint64_t workspace_bytes_ = 0;
  uint64_t thread_scratch_bytes_ = 0;
};

}  // namespace strata::cpu
