#include "runtime/sched/compute_measure.h"

#include <algorithm>
#include <deque>
#include <numeric>

#include "runtime/memory/graph_allocator.h"
#include "runtime/sched/assignment.h"
#include "runtime/sched/splitter.h"

namespace strata {
namespace {

// The first device with the same memory, by device.
std::vector<size_t> memory_owners(std::span<Device* const> devices) {
  std::vector<size_t> owners;
  for (const Device* device : devices) {
    size_t first = 0;
    while (&devices[first]->compute_buffer_type() != &device->compute_buffer_type()) ++first;
    owners.push_back(first);
  }
  return owners;
}

std::vector<const BufferType*> compute_types(std::span<Device* const> devices) {
  std::vector<const BufferType*> types;
  for (const Device* device : devices) types.push_back(&device->compute_buffer_type());
  return types;
}

// A pool of the allocator for each kind of memory, in the order of the devices that own them.
void keep_largest(const AllocationPlan& plan, std::vector<std::vector<uint64_t>>& chunks) {
  chunks.resize(std::max(chunks.size(), plan.chunk_bytes().size()));
  for (size_t pool = 0; pool < plan.chunk_bytes().size(); ++pool) {
    const std::vector<uint64_t>& sizes = plan.chunk_bytes()[pool];
    chunks[pool].resize(std::max(chunks[pool].size(), sizes.size()));
    for (size_t i = 0; i < sizes.size(); ++i) {
      chunks[pool][i] = std::max(chunks[pool][i], sizes[i]);
    }
  }
}

}  // namespace

Result<std::vector<uint64_t>> measure_compute(std::span<Graph* const> graphs,
                                              std::span<Device* const> devices,
                                              const BackendOptions& backend, int n_copies) {
  const std::vector<const Device*> constant(devices.begin(), devices.end());
  const GraphAllocator allocator(compute_types(devices));
  std::deque<SplitPlan> splits;  // the parts point into them
  std::vector<std::vector<GraphView>> parts(devices.size());
  std::vector<std::vector<uint64_t>> chunks;
  for (const Graph* graph : graphs) {
    const Assignment assignment = TRY(assign_backends(*graph, constant, {}));
    splits.push_back(split_graph(*graph, assignment, constant, n_copies));
    keep_largest(TRY(allocator.plan(splits.back().request)), chunks);
    for (const Split& split : splits.back().splits) {
      parts[static_cast<size_t>(split.backend)].push_back({split.nodes.front(), 0});
    }
  }
  std::vector<uint64_t> bytes(devices.size());
  const std::vector<size_t> owners = memory_owners(devices);
  size_t pool = 0;
  for (size_t d = 0; d < devices.size(); ++d) {
    if (owners[d] == d && pool < chunks.size()) {
      bytes[d] = std::accumulate(chunks[pool].begin(), chunks[pool].end(), uint64_t{0});
      ++pool;
    }
    bytes[d] += TRY(devices[d]->workspace_bytes(parts[d], backend));
  }
  return bytes;
}

}  // namespace strata
