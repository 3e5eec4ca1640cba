// CgroupLimits: what control groups leave this process of processors and memory.
//
// Both versions, side by side too, wherever they are mounted: /proc/self/mountinfo says where, and
// /proc/self/cgroup in which group this process is. The groups around it count as well, as far as
// they can be seen; in a container the outermost is the container's own.
//
// It is the state at one moment. Source: Linux, Documentation/admin-guide/cgroup-v1 and cgroup-v2.
// Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace strata {

struct CgroupLimits {
  // Of processors at once, on average over a period (cpu.max, cpu.cfs_quota_us): the least.
  std::optional<double> cores;
  // The least of memory.max, memory.high and memory.limit_in_bytes. None may be far above what the
  // machine has.
  std::optional<uint64_t> memory_bytes;
  // The least that any of these groups has left. Cached files that are not in use count as left:
  // the kernel drops them.
  std::optional<uint64_t> memory_free_bytes;
  std::string memory_group;  // the folder of the group that memory_bytes is of
};

// `root`: where to look for /proc and /sys; tests say.
CgroupLimits read_cgroup_limits(const std::string& root = "");

}  // namespace strata
