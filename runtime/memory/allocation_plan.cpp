#include "runtime/memory/allocation_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "runtime/base/check.h"
#include "runtime/base/human.h"
#include "runtime/memory/buffer.h"

namespace strata {
namespace {

bool same_layout(const Tensor& a, const Tensor& b) {
  if (a.dtype != b.dtype || a.ne != b.ne) return false;
  for (int i = 0; i < kMaxDims; ++i) {
    // The stride of a dimension of one element is never used.
    if (a.ne[i] != 1 && a.nb[i] != b.nb[i]) return false;
  }
  return true;
}

const Tensor* storage_of(const Tensor* tensor) {
  return tensor->view_source != nullptr ? tensor->view_source : tensor;
}

// Memory that the caller gave it, or another allocator.
bool placed_elsewhere(const Tensor& tensor) { return tensor.buffer != nullptr && !tensor.planned; }

// Ids of storages: what the request itself places, in order of appearance. Negative ids: external.
using StorageIds = std::unordered_map<const Tensor*, int>;
constexpr int kExternal = -1;

struct Walk {
  StorageIds ids;
  std::vector<uint64_t> structure;
};

// Numbers everything that the request places, and writes down the request's structure.
Walk walk(const AllocationRequest& request) {
  Walk result;
  int next_id = 0;
  const auto define = [&](const Tensor* tensor) {
    if (placed_elsewhere(*tensor)) return;
    if (result.ids.emplace(tensor, next_id).second) ++next_id;
  };
  const auto id_of = [&](const Tensor* tensor) {
    const auto found = result.ids.find(storage_of(tensor));
    return found == result.ids.end() ? kExternal : found->second;
  };
  const auto note = [&](int64_t number) {
    result.structure.push_back(static_cast<uint64_t>(number));
  };
  for (const AllocationInput& input : request.inputs) {
    define(input.tensor);
    note(id_of(input.tensor));
    note(input.buffer_index);
    note(input.tensor->is_output);
  }
  note(static_cast<int64_t>(request.steps.size()));
  for (const AllocationStep& step : request.steps) {
    if (step.result->view_source == nullptr) define(step.result);
    note(static_cast<int64_t>(step.result->op));
    note(id_of(step.result));
    note(step.result->view_source != nullptr);
    note(step.buffer_index);
    note(step.result->is_output);
    note(static_cast<int64_t>(step.reads.size()));
    for (const Tensor* read : step.reads) note(id_of(read));
    // A result that takes over a view lies where the view begins.
    if (op_can_work_in_place(step.result->op) && !step.reads.empty()) {
      note(static_cast<int64_t>(step.reads[0]->view_offset));
    }
  }
  return result;
}

}  // namespace

// Plays one request through the range allocators. Lives for one call of AllocationPlan::make.
class AllocationPlanner {
 public:
  AllocationPlanner(const AllocationRequest& request, std::span<const int> pool_of,
                    std::span<const PoolShape> pools, UnplacedLeaves leaves)
      : request_(request), pool_of_(pool_of), pools_(pools), leaves_(leaves) {}

  Result<AllocationPlan> run();

 private:
  struct Storage {
    AllocationPlan::Place place;
    size_t last_use = 0;
    bool keeps = false;  // input or output: never freed, never taken over
    bool made = false;
  };

  Status find_last_uses();
  Status check_readable(const Tensor& tensor);
  Status pin(const Tensor& storage);
  void open_pools();
  Status allocate_inputs();
  Status run_step(size_t index);
  bool take_over_source(const AllocationStep& step, size_t index, Storage& result);
  Status allocate(const Tensor& tensor, int buffer_index, Storage& storage);
  Storage* find(const Tensor* tensor);

  const AllocationRequest& request_;
  const std::span<const int> pool_of_;
  const std::span<const PoolShape> pools_;
  const UnplacedLeaves leaves_;

  AllocationPlan plan_;
  StorageIds ids_;
  std::vector<Storage> storages_;         // by id
  std::vector<std::vector<int>> deaths_;  // by step: ids whose last use it is
  std::vector<RangeAllocator> ranges_;    // by pool
  std::vector<std::vector<std::vector<MemoryRange>>> pinned_ranges_;  // by pool and chunk
};

AllocationPlanner::Storage* AllocationPlanner::find(const Tensor* tensor) {
  const auto found = ids_.find(storage_of(tensor));
  return found == ids_.end() ? nullptr : &storages_[static_cast<size_t>(found->second)];
}

Result<AllocationPlan> AllocationPlanner::run() {
  Walk walked = walk(request_);
  ids_ = std::move(walked.ids);
  plan_.structure_ = std::move(walked.structure);
  storages_.resize(ids_.size());
  deaths_.resize(request_.steps.size());
  pinned_ranges_.resize(pools_.size());
  for (size_t p = 0; p < pools_.size(); ++p) pinned_ranges_[p].resize(pools_[p].chunks.size());

  TRY(find_last_uses());
  open_pools();
  TRY(allocate_inputs());
  for (size_t i = 0; i < request_.steps.size(); ++i) TRY(run_step(i));

  for (const RangeAllocator& ranges : ranges_) {
    std::vector<uint64_t>& bytes = plan_.chunk_bytes_.emplace_back();
    for (int c = 0; c < ranges.chunk_count(); ++c) bytes.push_back(ranges.chunk_peak(c));
  }
  return std::move(plan_);
}

Status AllocationPlanner::find_last_uses() {
  for (const AllocationInput& input : request_.inputs) {
    Storage* storage = find(input.tensor);
    if (storage != nullptr) storage->keeps = storage->made = true;
  }
  for (size_t i = 0; i < request_.steps.size(); ++i) {
    const AllocationStep& step = request_.steps[i];
    for (const Tensor* read : step.reads) {
      Storage* storage = find(read);
      if (storage == nullptr) {
        TRY(check_readable(*read).with_context("source of " + describe(*step.result)));
        continue;
      }
      STRATA_CHECK(storage->made, "read before it is made: " + describe(*read));
      storage->last_use = i;
      if (read->is_output) storage->keeps = true;
    }
    Storage* storage = find(step.result);
    if (storage == nullptr) {
      TRY(check_readable(*step.result));
      continue;
    }
    storage->made = true;
    storage->last_use = i;
    if (step.result->is_output) storage->keeps = true;
  }
  for (size_t id = 0; id < storages_.size(); ++id) {
    const Storage& storage = storages_[id];
    if (!storage.keeps) deaths_[storage.last_use].push_back(static_cast<int>(id));
  }
  return ok_status();
}

Status AllocationPlanner::check_readable(const Tensor& tensor) {
  const Tensor& storage = *storage_of(&tensor);
  if (placed_elsewhere(storage)) return ok_status();
  if (storage.planned) return pin(storage);
  if (leaves_ == UnplacedLeaves::counted_as_placed && storage.op == Op::none) return ok_status();
  return failed_precondition(fmt::format("tensor {} has no memory", describe(storage)),
                             "place weights and caches before the graph that reads them");
}

Status AllocationPlanner::pin(const Tensor& storage) {
  for (size_t p = 0; p < pools_.size(); ++p) {
    for (size_t c = 0; c < pools_[p].chunks.size(); ++c) {
      const Buffer* chunk = pools_[p].chunks[c];
      if (chunk == nullptr || chunk != storage.buffer) continue;
      const uint64_t offset = static_cast<uint64_t>(storage.data - chunk->base());
      pinned_ranges_[p][c].push_back(
          {static_cast<int>(c), offset, pools_[p].type->allocation_size(storage)});
      return ok_status();
    }
  }
  return failed_precondition(
      fmt::format("tensor {} of another graph has lost its memory", describe(storage)),
      "run the graph that makes it again before the one that reads it");
}

// A pool starts from nothing, unless it holds something that is read: then its chunks are there
// from the start, with holes around what is read, and those that hold it cannot grow.
void AllocationPlanner::open_pools() {
  plan_.pinned_.resize(pools_.size());
  for (size_t p = 0; p < pools_.size(); ++p) {
    const BufferType& type = *pools_[p].type;
    RangeAllocator& ranges = ranges_.emplace_back(type.alignment(), type.max_size());
    std::vector<std::vector<MemoryRange>>& pinned = pinned_ranges_[p];
    const bool any = std::any_of(pinned.begin(), pinned.end(),
                                 [](const auto& chunk_ranges) { return !chunk_ranges.empty(); });
    if (!any) continue;
    plan_.pinned_[p].resize(pinned.size());
    for (size_t c = 0; c < pinned.size(); ++c) {
      plan_.pinned_[p][c] = !pinned[c].empty();
      const uint64_t limit = pinned[c].empty() ? type.max_size() : pools_[p].chunks[c]->size();
      ranges.add_chunk(limit, std::move(pinned[c]));
    }
  }
}

Status AllocationPlanner::allocate(const Tensor& tensor, int buffer_index, Storage& storage) {
  const int pool = pool_of_[static_cast<size_t>(buffer_index)];
  const uint64_t size = pools_[static_cast<size_t>(pool)].type->allocation_size(tensor);
  const MemoryRange block = ranges_[static_cast<size_t>(pool)].allocate(size);
  if (!block.valid()) {
    return resource_exhausted(fmt::format(
        "no room for {} ({}) in {} chunks of {} memory", describe(tensor), human_bytes(size),
        RangeAllocator::kMaxChunks, pools_[static_cast<size_t>(pool)].type->name()));
  }
  storage.place = {pool, block, 0, size, false};
  return ok_status();
}

Status AllocationPlanner::allocate_inputs() {
  for (const AllocationInput& input : request_.inputs) {
    Storage* storage = find(input.tensor);
    if (storage != nullptr && !storage->place.block.valid()) {
      TRY(allocate(*input.tensor, input.buffer_index, *storage));
    }
    plan_.inputs_.push_back(storage != nullptr ? storage->place : AllocationPlan::Place{});
  }
  return ok_status();
}

bool AllocationPlanner::take_over_source(const AllocationStep& step, size_t index,
                                         Storage& result) {
  if (!op_can_work_in_place(step.result->op) || step.reads.empty()) return false;
  const Tensor& source = *step.reads[0];
  Storage* from = find(&source);
  if (from == nullptr || from->keeps || from->last_use != index) return false;
  const int pool = pool_of_[static_cast<size_t>(step.buffer_index)];
  if (from->place.pool != pool || !from->place.block.valid()) return false;
  if (!same_layout(source, *step.result)) return false;
  for (size_t i = 1; i < step.reads.size(); ++i) {
    if (storage_of(step.reads[i]) == storage_of(&source)) return false;
  }
  const BufferType& type = *pools_[static_cast<size_t>(pool)].type;
  AllocationPlan::Place place = from->place;
  place.offset += source.view_offset;
  place.size = type.allocation_size(*step.result);
  place.in_place = true;
  if (place.offset % type.alignment() != 0) return false;
  if (place.offset + place.size > place.block.size) return false;
  result.place = place;
  from->place.block = {};  // the block is the result's now: the source's death frees nothing
  return true;
}

Status AllocationPlanner::run_step(size_t index) {
  const AllocationStep& step = request_.steps[index];
  Storage* result = step.result->view_source == nullptr ? find(step.result) : nullptr;
  if (result != nullptr && result->place.pool < 0 && !take_over_source(step, index, *result)) {
    TRY(allocate(*step.result, step.buffer_index, *result));
  }
  plan_.steps_.push_back(result != nullptr ? result->place : AllocationPlan::Place{});
  for (const int id : deaths_[index]) {
    const AllocationPlan::Place& place = storages_[static_cast<size_t>(id)].place;
    if (place.block.valid()) ranges_[static_cast<size_t>(place.pool)].release(place.block);
  }
  return ok_status();
}

AllocationRequest allocation_request(const Graph& graph) {
  AllocationRequest request;
  for (Tensor* input : graph.inputs()) request.inputs.push_back({input, 0});
  for (Tensor* node : graph.nodes()) request.steps.push_back({node, node->sources, 0});
  return request;
}

Result<AllocationPlan> AllocationPlan::make(const AllocationRequest& request,
                                            std::span<const int> pool_of,
                                            std::span<const PoolShape> pools,
                                            UnplacedLeaves leaves) {
  return AllocationPlanner(request, pool_of, pools, leaves).run();
}

uint64_t AllocationPlan::total_bytes() const {
  uint64_t sum = 0;
  for (const std::vector<uint64_t>& chunks : chunk_bytes_) {
    for (const uint64_t size : chunks) sum += size;
  }
  return sum;
}

bool AllocationPlan::pins_chunk(int pool, int chunk) const {
  const std::vector<bool>& pinned = pinned_[static_cast<size_t>(pool)];
  return static_cast<size_t>(chunk) < pinned.size() && pinned[static_cast<size_t>(chunk)];
}

bool AllocationPlan::pins_any() const {
  return std::any_of(pinned_.begin(), pinned_.end(),
                     [](const std::vector<bool>& chunks) { return !chunks.empty(); });
}

bool AllocationPlan::fits(const AllocationRequest& request, std::span<const int> pool_of,
                          std::span<const PoolShape> pools) const {
  if (inputs_.size() != request.inputs.size() || steps_.size() != request.steps.size()) {
    return false;
  }
  if (pins_any()) return false;  // another graph's result may lie anywhere next time
  const Walk walked = walk(request);
  if (walked.structure != structure_) return false;
  const auto holds = [&](const Place& place, int buffer_index, const Tensor& tensor) {
    if (place.pool < 0) return true;
    const size_t pool = static_cast<size_t>(pool_of[static_cast<size_t>(buffer_index)]);
    return static_cast<size_t>(place.pool) == pool &&
           pools[pool].type->allocation_size(tensor) <= place.size;
  };
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const AllocationInput& input = request.inputs[i];
    if (!holds(inputs_[i], input.buffer_index, *input.tensor)) return false;
  }
  for (size_t i = 0; i < steps_.size(); ++i) {
    const AllocationStep& step = request.steps[i];
    if (!holds(steps_[i], step.buffer_index, *step.result)) return false;
    for (const Tensor* read : step.reads) {
      // What is not ours must have memory that stays: else plan() pins it or says what is wrong.
      const Tensor* storage = storage_of(read);
      if (!walked.ids.contains(storage) && !placed_elsewhere(*storage)) return false;
    }
    if (!steps_[i].in_place) continue;
    if (!same_layout(*step.reads[0], *step.result)) return false;
  }
  return true;
}

}  // namespace strata
