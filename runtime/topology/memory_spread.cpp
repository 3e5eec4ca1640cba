#include "runtime/topology/memory_spread.h"

#include <unistd.h>

#include <fstream>
#include <utility>

#include "runtime/base/cpu_list.h"
#include "runtime/base/log.h"

namespace strata {

MemorySpread::MemorySpread(Topology topology, std::span<const int> cpus) {
  std::vector<int> nodes = topology.memory_nodes(cpus);
  if (nodes.size() < 2) return;
  nodes_ = std::move(nodes);
  topology_ = std::move(topology);
}

MemorySpread::MemorySpread(MemorySpread&& other) noexcept
    : topology_(std::move(other.topology_)),
      nodes_(std::move(other.nodes_)),
      refused_(other.refused_.load()) {}

MemorySpread MemorySpread::of_this_process(const std::string& root) {
  std::ifstream file(root + "/sys/devices/system/node/online");
  std::string text;
  std::getline(file, text);
  const auto online = parse_cpu_list(text);
  if (!online || online->size() < 2) return {};
  Result<Topology> topology = Topology::of_this_machine();
  if (!topology.ok()) {
    log::debug("weights are not spread over memory nodes: {}", topology.status().to_string());
    return {};
  }
  return {std::move(topology).value(), allowed_cpus(::getpid())};
}

void MemorySpread::apply(std::span<std::byte> memory) const {
  if (nodes_.empty() || memory.empty()) return;
  const Status status = topology_->interleave(memory, nodes_);
  if (!status.ok() && !refused_.exchange(true)) {
    log::debug("weights are where they are first touched: {}", status.to_string());
  }
}

}  // namespace strata
