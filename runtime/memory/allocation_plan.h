// AllocationRequest and AllocationPlan: what the graph allocator is asked for, and what it decides.
//
// A request lists steps in the order in which they run, each with the tensor that it makes and
// those that it reads. For a plain graph these are its nodes and their sources; the scheduler also
// makes steps of the copies between backends, and lets nodes read those instead of their sources.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/memory/buffer.h"
#include "runtime/memory/range_allocator.h"

namespace strata {

// Written from outside before the run, and kept for the whole of it.
struct AllocationInput {
  Tensor* tensor = nullptr;
  int buffer_index = 0;
};

struct AllocationStep {
  Tensor* result = nullptr;
  std::span<Tensor* const> reads;  // must outlive the request
  int buffer_index = 0;            // where the result lies; of no meaning for views
};

struct AllocationRequest {
  std::vector<AllocationInput> inputs;
  std::vector<AllocationStep> steps;
};

// The graph's own inputs and nodes, all with buffer index 0.
AllocationRequest allocation_request(const Graph& graph);

// Whether leaves that are no inputs may be without memory: `counted_as_placed` is for measuring
// before weights are loaded.
enum class UnplacedLeaves : uint8_t { refused, counted_as_placed };

// Kinds of memory as a plan sees them: pure description, so that planning needs no buffers.
struct PoolShape {
  const BufferType* type = nullptr;
  std::vector<const Buffer*> chunks;  // held now; null entries are empty
};

class AllocationPlan {
 public:
  // Errors: as GraphAllocator::plan(). `pool_of` maps buffer indices to `pools`.
  static Result<AllocationPlan> make(const AllocationRequest& request, std::span<const int> pool_of,
                                     std::span<const PoolShape> pools, UnplacedLeaves leaves);

  // Where a tensor of the request goes. No range for views and for tensors placed elsewhere.
  struct Place {
    int pool = -1;
    MemoryRange block;    // taken over whole from a source if in_place
    uint64_t offset = 0;  // of the tensor inside the block, when it took over from a view
    uint64_t size = 0;    // bytes that the tensor itself takes
    bool in_place = false;
  };
  std::span<const Place> inputs() const { return inputs_; }
  std::span<const Place> steps() const { return steps_; }

  // Sizes to hold, for each pool and chunk.
  const std::vector<std::vector<uint64_t>>& chunk_bytes() const { return chunk_bytes_; }
  uint64_t total_bytes() const;
  // Chunks that must not move, because the plan reads another graph's results there.
  bool pins_chunk(int pool, int chunk) const;
  bool pins_any() const;

  // Whether the plan serves this request as well: equal ops, equal buffer indices and flags, the
  // same results read by the same steps (not only equal shapes: two graphs with equal lists of
  // shapes may have other lifetimes), no result larger than planned, and what works in place can
  // still do so.
  bool fits(const AllocationRequest& request, std::span<const int> pool_of,
            std::span<const PoolShape> pools) const;

 private:
  friend class AllocationPlanner;

  std::vector<Place> inputs_;
  std::vector<Place> steps_;
  std::vector<std::vector<uint64_t>> chunk_bytes_;
  std::vector<std::vector<bool>> pinned_;
  std::vector<uint64_t> structure_;  // everything but sizes, as one list of numbers
};

}  // namespace strata
