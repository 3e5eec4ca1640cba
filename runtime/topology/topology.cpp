#include "runtime/topology/topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace strata {
namespace {

// A set of numbers as hwloc has it.
class Bitmap {
 public:
  explicit Bitmap(std::span<const int> numbers) : bits_(hwloc_bitmap_alloc()) {
    for (const int number : numbers) hwloc_bitmap_set(bits_, static_cast<unsigned>(number));
  }
  ~Bitmap() { hwloc_bitmap_free(bits_); }
  Bitmap(const Bitmap&) = delete;
  Bitmap& operator=(const Bitmap&) = delete;

  hwloc_const_bitmap_t get() const { return bits_; }

 private:
  hwloc_bitmap_t bits_;
};

}  // namespace

struct Topology::Impl {
  Impl() { made = hwloc_topology_init(&topology) == 0; }
  ~Impl() {
    if (made) hwloc_topology_destroy(topology);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  hwloc_topology_t topology = nullptr;
  bool made = false;
};

Topology::Topology(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Topology::Topology(Topology&&) noexcept = default;
Topology& Topology::operator=(Topology&&) noexcept = default;
Topology::~Topology() = default;

Result<Topology> Topology::of_this_machine() {
  auto impl = std::make_unique<Impl>();
  // Not by binding this thread to each processor in turn.
  if (!impl->made ||
      hwloc_topology_set_flags(impl->topology, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING) != 0 ||
      hwloc_topology_load(impl->topology) != 0) {
    return unavailable("hwloc cannot tell the cores of this machine");
  }
  return Topology(std::move(impl));
}

Result<Topology> Topology::described(const std::string& description) {
  auto impl = std::make_unique<Impl>();
  if (!impl->made || hwloc_topology_set_synthetic(impl->topology, description.c_str()) != 0 ||
      hwloc_topology_load(impl->topology) != 0) {
    return invalid_argument(fmt::format("'{}' describes no machine", description));
  }
  return Topology(std::move(impl));
}

std::vector<int> Topology::one_per_core_first(std::span<const int> cpus) const {
  const hwloc_topology_t topology = impl_->topology;
  const Bitmap wanted(cpus);
  std::vector<int> order;
  const int cores = std::max(hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE), 0);
  for (int round = 0; order.size() < cpus.size(); ++round) {
    const size_t before = order.size();
    for (int c = 0; c < cores; ++c) {
      const hwloc_obj_t core =
          hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, static_cast<unsigned>(c));
      int skip = round;
      int cpu = -1;
      // The next of the core's processors that is wanted, after those of earlier rounds.
      while ((cpu = hwloc_bitmap_next(core->cpuset, cpu)) >= 0) {
        if (!hwloc_bitmap_isset(wanted.get(), static_cast<unsigned>(cpu))) continue;
        if (skip-- == 0) break;
      }
      if (cpu >= 0) order.push_back(cpu);
    }
    if (order.size() == before) break;
  }
  for (const int cpu : cpus) {
    if (std::find(order.begin(), order.end(), cpu) == order.end()) order.push_back(cpu);
  }
  return order;
}

std::vector<int> Topology::memory_nodes(std::span<const int> cpus) const {
  std::vector<int> nodes;
  for (const int cpu : cpus) {
    // A processor's first node: further ones are other kinds of memory.
    hwloc_obj_t node = nullptr;
    while ((node = hwloc_get_next_obj_by_type(impl_->topology, HWLOC_OBJ_NUMANODE, node)) !=
           nullptr) {
      if (hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(cpu))) break;
    }
    if (node != nullptr) nodes.push_back(static_cast<int>(node->os_index));
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

Status Topology::interleave(std::span<std::byte> memory, std::span<const int> nodes) const {
  const Bitmap set(nodes);
  if (hwloc_set_area_membind(impl_->topology, memory.data(), memory.size(), set.get(),
                             HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET) == 0) {
    return ok_status();
  }
  return unavailable(
      fmt::format("the system does not spread memory over its nodes: {}", std::strerror(errno)));
}

}  // namespace strata
