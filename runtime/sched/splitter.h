// Splitter: cuts a graph into runs of nodes that one backend executes, with the copies in between.
//
//   nodes     a   b   c   d   e   f        a tensor that crosses is copied at the start of the
//   backend   0   0   1   1   0   0        split that reads it first, once per backend:
//            └─split 0┘└split 1┘└split 2┘
//   inputs        -     b→b'     d→d', (b is at home)
//
// A node is never changed. One that reads a copy is run through a stand-in: a clone of it with the
// copy as source, in the same memory. With n copies for pipelining there are n sets of copies and
// of stand-ins; micro-batch i uses set i modulo n, so that its copies may arrive while the split
// still works on the set before:
//
//   backend 0   |mb 0     |mb 1     |mb 2     |
//                     copy to set 0↘     ↘set 1     ↘set 0 again, after mb 0 was read
//   backend 1             |mb 0     |mb 1     |mb 2     |
//
// A copy that may be written while an earlier split still runs keeps its memory for the whole
// plan. Copies of weights (for a device that asked for the node) and of caches are there once, and
// their memory is shared like that of any result.
//
// A view without gaps is copied by itself; of any other view the whole tensor that it shows is
// copied, and a stand-in of the view shows the copy.
//
// Threads: plain values. Owns: copies and stand-ins; the nodes are the graph's.
#pragma once

#include <deque>
#include <span>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/graph/graph.h"
#include "runtime/memory/allocation_plan.h"
#include "runtime/sched/assignment.h"

namespace strata {

// One tensor that is brought into the split's backend before it runs.
struct SplitInput {
  const Tensor* source = nullptr;
  int from = -1;                // backend that made it; -1: placed elsewhere (weight, cache)
  bool persistent = false;      // one copy per set; else copies holds one
  std::vector<Tensor*> copies;  // by set
  const Tensor* copy(size_t set) const { return copies[persistent ? set : 0]; }
};

struct Split {
  int backend = 0;
  std::vector<SplitInput> inputs;           // any number
  std::vector<size_t> node_indices;         // into graph.nodes()
  std::vector<std::vector<Tensor*>> nodes;  // by set: the nodes, or their stand-ins
};

// A stand-in shares its original's memory, and is given it when the original is placed.
struct StandIn {
  Tensor* tensor = nullptr;
  const Tensor* original = nullptr;
};

struct SplitPlan {
  std::deque<Tensor> arena;
  std::vector<Split> splits;
  std::vector<StandIn> stand_ins;     // of nodes
  std::vector<Tensor*> copied_views;  // stand-ins of views, to be placed with their copies
  // What the graph allocator is to place; buffer index = backend index.
  AllocationRequest request;
};

// Requires: `assignment` is for this graph and these devices; 1 <= n_copies.
SplitPlan split_graph(const Graph& graph, const Assignment& assignment,
                      std::span<const Device* const> devices, int n_copies);

// One line per split: backend, nodes, and the copies with sizes.
std::string describe_splits(const Graph& graph, const SplitPlan& plan,
                            std::span<const Device* const> devices);

}  // namespace strata
