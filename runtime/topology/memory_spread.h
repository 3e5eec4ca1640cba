// MemorySpread: weights over the memory nodes of the processors that read them.
//
// Which thread reads which weights is settled piece by piece as a job runs, so that no node is the
// right one for a page. Pages in turn make all nodes' channels work at all times, and cost each
// thread the same. With one node, which is almost every machine, nothing is asked for and no call
// made. What its user touches first (KV cache, workspace, scratch memory) is left to the kernel,
// which takes it from the node of the thread that does (docs/kernels.md).
//
// Threads: any.
#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/topology/topology.h"

namespace strata {

class MemorySpread {
 public:
  // Over the nodes next to `cpus`; none if that is one.
  MemorySpread(Topology topology, std::span<const int> cpus);
  // None, for a machine with one node.
  MemorySpread() = default;

  // For the processors that this process may use. `root`: where to look for /sys; tests say.
  static MemorySpread of_this_process(const std::string& root = "");
  MemorySpread(MemorySpread&& other) noexcept;
  MemorySpread& operator=(MemorySpread&&) = delete;

  // Ascending; empty for none.
  const std::vector<int>& nodes() const { return nodes_; }
  // For memory that nobody has touched. A system that refuses, as containers may, leaves it where
  // first touch puts it: said once in the log.
  void apply(std::span<std::byte> memory) const;

 private:
  std::optional<Topology> topology_;
  std::vector<int> nodes_;
  mutable std::atomic<bool> refused_ = false;
};

}  // namespace strata
