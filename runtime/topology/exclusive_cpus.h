// Whether a process has its processors to itself: the rule by which threads are pinned unasked.
//
// A pinned thread cannot step aside. On a processor that others use too it waits for them while
// another processor may be idle; unpinned, the kernel moves it there. So the answer is yes only if
//
//   1. the processors are fewer than the machine has (on all of them, everything else runs), and
//   2. nobody else comes there: they are isolated from the scheduler (isolcpus), or the process is
//      in a partition of cgroup version 2 (cpuset.cpus.partition is root or isolated), or all
//      processes of the host can be seen from here, and
//   3. no process that can be seen may run on any of them, but this one and those that it descends
//      from (its shell, its launcher).
//
// A mask of taskset or mpirun, a container's --cpuset-cpus and Kubernetes' static CPU manager do
// not suffice by themselves: from within they look like what shared processors look like. Who gives
// processors away for good says so with --pin on.
//
// It is the state at one moment. Kernel threads do not count, and of a process its first thread.
// Threads: any.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>

namespace strata {

struct CpuClaim {
  bool is_exclusive = false;
  std::string reason;  // why, or why not, to follow a colon
};

// `cpus`: where this process may run. `root`: where to look for /proc and /sys, and `self`: which
// process there this one is; tests say.
CpuClaim judge_cpus(std::span<const int> cpus, const std::string& root, pid_t self);

}  // namespace strata
