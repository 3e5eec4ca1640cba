// Assignment: which backend runs each node of a graph.
//
// Passes, each leaving alone what an earlier one decided:
//   1. Where a node writes: kv_write and other ops on memory that is placed already run where that
//      memory is.
//   2. Pins by the caller.
//   3. Where a node's largest placed source is (weights, caches): moving activations is cheaper.
//      Weights in host memory may be copied to a device that asks for the node (Device::wants).
//   4. Neighbours: nodes without such sources join the node before them, else the one after, first
//      those of accelerators, then those of the last backend, as long as the device supports them.
//   5. What is left goes to the backend that can read most of its sources, ties to the first.
// Views do no work and stay with the tensor that they show. An input lies where its first reader
// runs; other readers get copies.
//
// Pure functions over devices and a graph. Threads: any.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device.h"
#include "runtime/graph/graph.h"

namespace strata {

struct NodePin {
  const Tensor* node = nullptr;
  int backend = 0;
};

// Backend indices, in the order of graph.nodes() and graph.inputs().
struct Assignment {
  std::vector<int> nodes;
  std::vector<int> inputs;
};

// The tensor whose memory it lies in: itself, or what it is a view of.
inline const Tensor* storage_of(const Tensor* tensor) {
  return tensor->view_source != nullptr ? tensor->view_source : tensor;
}

// `devices` by falling priority; the last one is the fallback. Requires: at least one.
// Errors: UNIMPLEMENTED for a node that no device (or not the pinned one) can run.
Result<Assignment> assign_backends(const Graph& graph, std::span<const Device* const> devices,
                                   std::span<const NodePin> pins);

}  // namespace strata
