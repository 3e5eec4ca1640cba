// GraphAllocator: gives the results of a graph memory that they share over time.
//
// A result is needed from the step that makes it to the last step that reads it. The allocator
// plays the steps in order through a RangeAllocator: take a range at birth, give it back after the
// last use. What lives at the same time never overlaps, and the peak is far below the sum:
//
//   step      reads    memory (address →)           what happens
//   a = f(x)  x        |x|aaa|                      input x keeps its place for the whole run
//   b = g(a)  a        |x|aaa|bbb|                  a's last use: free after the step
//   c = h(b)  b        |x|ccc|bbb|                  c takes a's hole, b is freed
//   d = c + b'         |x|ddd|                      add works in place: d takes over c's range
//   v = view of d      |x|ddd|                      no memory; d now lives as long as v is read
//   out = k(v)         |x|ddd|out|                  an output is never freed nor reused
//
// Last use is what counting children and views amounts to: a view's readers are readers of the
// tensor whose bytes it shows, and the count is zero exactly after the last of them.
//
// In place: a result takes over the range of its first source if the op allows it, nobody reads
// that source (or another view of the same bytes) afterwards or as a second source of this step,
// it is neither input nor output, and both have the same type, shape and strides.
//
// A tensor with memory from elsewhere (weight, cache, result that the caller placed) is left alone.
// A result of another graph that lives in this allocator's memory may be read too: its range is
// taken for the whole plan, and the chunk that it lies in is not moved.
//
// Several kinds of memory at once: each step names a buffer type by index; equal types share one
// pool. A pool has one Buffer per chunk; a chunk grows when a plan needs more, which moves
// everything placed before (generation() changes).
//
// Two ways to use it. reserve(graph) and allocate(graph) keep one plan, and allocate() makes a new
// one only if the graph differs from it (AllocationPlan::fits). Who keeps many plans, as the
// scheduler does, calls plan(), grow() and place().
//
// Threads: externally synchronised. Owns: the buffers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/memory/allocation_plan.h"
#include "runtime/memory/buffer.h"

namespace strata {

class GraphAllocator {
 public:
  // One entry for each buffer index that requests use; the same type may stand there repeatedly.
  explicit GraphAllocator(std::vector<const BufferType*> types);

  // A plan for the request; allocates nothing and changes no tensor.
  // Errors: FAILED_PRECONDITION for a tensor that is read but neither made, nor an input, nor
  // placed (unless `leaves` allows it), or whose memory was given up since.
  Result<AllocationPlan> plan(const AllocationRequest& request,
                              UnplacedLeaves leaves = UnplacedLeaves::refused) const;
  // Whether grow(plan) would do anything.
  bool must_grow(const AllocationPlan& plan) const;
  // The buffers that grow(plan) would give up for larger ones.
  std::vector<const Buffer*> outgrown(const AllocationPlan& plan) const;
  // Makes the pools large enough for the plan. True if anything moved: what was placed in those
  // pools before is lost. The caller has made sure that nobody works in them.
  // Errors: RESOURCE_EXHAUSTED with need and have; the chunk in question is then empty, and grows
  // again for the next plan.
  Result<bool> grow(const AllocationPlan& plan);
  // Gives the request's tensors their addresses. Requires: `plan` was made for this request or
  // fits it, and grow(plan) succeeded since the last grow() of another plan that moved.
  void place(const AllocationPlan& plan, const AllocationRequest& request) const;

  // Memory for graphs like this one, without placing it; call it for each shape that will come.
  Status reserve(const Graph& graph);
  // Places all results and inputs of the graph; what was placed for another graph is overwritten
  // when this one runs. Errors: as plan() and grow().
  Status allocate(Graph& graph);
  // How often allocate() had to make a new plan. For tests and logs.
  uint64_t replan_count() const { return replan_count_; }

  // Changes whenever grow() moved something.
  uint64_t generation() const { return generation_; }
  // Bytes held for the buffer index; 0 for an index whose type stands at a lower one too.
  uint64_t held_bytes(int buffer_index) const;
  uint64_t held_bytes() const;
  // The buffers of the index's pool, by chunk.
  std::vector<Buffer*> buffers(int buffer_index) const;
  // The first buffer index of the pool that the buffer belongs to, or -1 if it is not ours.
  int index_of(const Buffer* buffer) const;

 private:
  struct Pool {
    const BufferType* type = nullptr;
    int first_index = 0;
    std::vector<std::unique_ptr<Buffer>> chunks;  // null: not needed so far
  };

  std::vector<PoolShape> pool_shapes() const;
  Status grow_chunk(Pool& pool, size_t chunk, uint64_t size);

  std::vector<const BufferType*> types_;
  std::vector<int> pool_of_;  // by buffer index
  std::vector<Pool> pools_;
  AllocationPlan last_plan_;
  uint64_t replan_count_ = 0;
  uint64_t generation_ = 1;
};

}  // namespace strata
