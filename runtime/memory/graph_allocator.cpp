#include "runtime/memory/graph_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/human.h"

namespace strata {

GraphAllocator::GraphAllocator(std::vector<const BufferType*> types) : types_(std::move(types)) {
  STRATA_CHECK(!types_.empty(), "a graph allocator without memory");
  for (size_t i = 0; i < types_.size(); ++i) {
    const auto known = std::find_if(pools_.begin(), pools_.end(),
                                    [&](const Pool& pool) { return pool.type == types_[i]; });
    pool_of_.push_back(static_cast<int>(known - pools_.begin()));
    if (known == pools_.end()) pools_.push_back({types_[i], static_cast<int>(i), {}});
  }
}

std::vector<PoolShape> GraphAllocator::pool_shapes() const {
  std::vector<PoolShape> shapes;
  for (const Pool& pool : pools_) {
    PoolShape& shape = shapes.emplace_back();
    shape.type = pool.type;
    for (const std::unique_ptr<Buffer>& chunk : pool.chunks) shape.chunks.push_back(chunk.get());
  }
  return shapes;
}

Result<AllocationPlan> GraphAllocator::plan(const AllocationRequest& request,
                                            UnplacedLeaves leaves) const {
  return AllocationPlan::make(request, pool_of_, pool_shapes(), leaves);
}

bool GraphAllocator::must_grow(const AllocationPlan& plan) const {
  for (size_t p = 0; p < pools_.size(); ++p) {
    const std::vector<uint64_t>& need = plan.chunk_bytes()[p];
    const std::vector<std::unique_ptr<Buffer>>& chunks = pools_[p].chunks;
    for (size_t c = 0; c < need.size(); ++c) {
      const uint64_t have = c < chunks.size() && chunks[c] != nullptr ? chunks[c]->size() : 0;
      if (need[c] > have) return true;
    }
  }
  return false;
}

std::vector<const Buffer*> GraphAllocator::outgrown(const AllocationPlan& plan) const {
  std::vector<const Buffer*> result;
  for (size_t p = 0; p < pools_.size(); ++p) {
    const std::vector<uint64_t>& need = plan.chunk_bytes()[p];
    for (size_t c = 0; c < std::min(need.size(), pools_[p].chunks.size()); ++c) {
      const Buffer* chunk = pools_[p].chunks[c].get();
      if (chunk != nullptr && need[c] > chunk->size()) result.push_back(chunk);
    }
  }
  return result;
}

Result<bool> GraphAllocator::grow(const AllocationPlan& plan) {
  bool moved = false;
  for (size_t p = 0; p < pools_.size(); ++p) {
    const std::vector<uint64_t>& need = plan.chunk_bytes()[p];
    Pool& pool = pools_[p];
    if (pool.chunks.size() < need.size()) pool.chunks.resize(need.size());
    for (size_t c = 0; c < need.size(); ++c) {
      const uint64_t have = pool.chunks[c] != nullptr ? pool.chunks[c]->size() : 0;
      if (need[c] <= have) continue;
      STRATA_CHECK(!plan.pins_chunk(static_cast<int>(p), static_cast<int>(c)),
                   "a chunk grows under what is read from it");
      if (have > 0) {
        moved = true;
        ++generation_;
      }
      TRY(grow_chunk(pool, c, need[c]));
    }
  }
  return moved;
}

Status GraphAllocator::grow_chunk(Pool& pool, size_t chunk, uint64_t size) {
  // The old one goes first: both together may be more than there is.
  pool.chunks[chunk].reset();
  Result<std::unique_ptr<Buffer>> buffer = pool.type->allocate(size);
  if (!buffer.ok()) {
    return buffer.status().with_context(fmt::format(
        "compute memory: chunk {} needs {}, {} of {} memory are held", chunk, human_bytes(size),
        human_bytes(held_bytes(pool.first_index)), pool.type->name()));
  }
  pool.chunks[chunk] = std::move(buffer).value();
  pool.chunks[chunk]->usage = BufferUsage::compute;
  return ok_status();
}

void GraphAllocator::place(const AllocationPlan& plan, const AllocationRequest& request) const {
  const auto put = [&](Tensor& tensor, const AllocationPlan::Place& where) {
    if (where.pool < 0) {
      if (tensor.view_source != nullptr && tensor.view_source->buffer != nullptr) {
        place_view(tensor);
        tensor.planned = tensor.view_source->planned;
      }
      return;
    }
    tensor.buffer = nullptr;
    Buffer& chunk = *pools_[static_cast<size_t>(where.pool)].chunks[where.block.chunk];
    strata::place(tensor, chunk, where.block.offset + where.offset);
    tensor.planned = true;
  };
  STRATA_CHECK(
      plan.inputs().size() == request.inputs.size() && plan.steps().size() == request.steps.size(),
      "the plan of another request");
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    put(*request.inputs[i].tensor, plan.inputs()[i]);
  }
  for (size_t i = 0; i < request.steps.size(); ++i) {
    put(*request.steps[i].result, plan.steps()[i]);
  }
}

Status GraphAllocator::reserve(const Graph& graph) {
  AllocationPlan fresh = TRY(plan(allocation_request(graph)));
  TRY(grow(fresh));
  last_plan_ = std::move(fresh);
  return ok_status();
}

Status GraphAllocator::allocate(Graph& graph) {
  const AllocationRequest request = allocation_request(graph);
  if (!last_plan_.fits(request, pool_of_, pool_shapes())) {
    last_plan_ = TRY(plan(request));
    ++replan_count_;
  }
  TRY(grow(last_plan_));
  place(last_plan_, request);
  return ok_status();
}

uint64_t GraphAllocator::held_bytes(int buffer_index) const {
  const Pool& pool = pools_[static_cast<size_t>(pool_of_[static_cast<size_t>(buffer_index)])];
  if (pool.first_index != buffer_index) return 0;
  uint64_t sum = 0;
  for (const std::unique_ptr<Buffer>& chunk : pool.chunks) sum += chunk ? chunk->size() : 0;
  return sum;
}

uint64_t GraphAllocator::held_bytes() const {
  uint64_t sum = 0;
  for (size_t i = 0; i < types_.size(); ++i) sum += held_bytes(static_cast<int>(i));
  return sum;
}

std::vector<Buffer*> GraphAllocator::buffers(int buffer_index) const {
  std::vector<Buffer*> result;
  const Pool& pool = pools_[static_cast<size_t>(pool_of_[static_cast<size_t>(buffer_index)])];
  for (const std::unique_ptr<Buffer>& chunk : pool.chunks) {
    if (chunk != nullptr) result.push_back(chunk.get());
  }
  return result;
}

int GraphAllocator::index_of(const Buffer* buffer) const {
  for (const Pool& pool : pools_) {
    for (const std::unique_ptr<Buffer>& chunk : pool.chunks) {
      if (chunk != nullptr && chunk.get() == buffer) return pool.first_index;
    }
  }
  return -1;
}

}  // namespace strata
