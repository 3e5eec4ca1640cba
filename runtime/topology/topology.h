// Topology: the cores and memory nodes of a machine, as hwloc finds them.
//
// The only place that knows hwloc. What is decided from it stands in thread_pins.h and
// memory_spread.h.
// Threads: any; immutable once made.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace strata {

class Topology {
 public:
  // Takes some milliseconds. Errors: UNAVAILABLE if hwloc cannot tell.
  static Result<Topology> of_this_machine();
  // A described machine, such as "package:2 core:4 pu:2", for tests. Errors: INVALID_ARGUMENT.
  static Result<Topology> described(const std::string& description);
  Topology(Topology&&) noexcept;
  Topology& operator=(Topology&&) noexcept;
  ~Topology();

  // These processors in the order in which to use them: one of each core, neighbouring cores
  // first, then the second of each core, and so on. What hwloc does not know comes last.
  std::vector<int> one_per_core_first(std::span<const int> cpus) const;

  // The memory nodes next to these processors, ascending, by the operating system's numbers.
  std::vector<int> memory_nodes(std::span<const int> cpus) const;

  // Asks for pages of these nodes in turn, for memory that nobody has touched yet. Whole pages
  // inside the range. Errors: UNAVAILABLE with the system's reason.
  Status interleave(std::span<std::byte> memory, std::span<const int> nodes) const;

 private:
  struct Impl;
  explicit Topology(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
