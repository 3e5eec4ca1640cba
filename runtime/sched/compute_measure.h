// What a scheduler would hold in compute memory, device by device, before there is any memory.
//
// Runs the scheduler's own planning (assignment, splitting, graph allocator) over tensors that are
// only described, and asks each device for the workspace that its backend takes besides. So what is
// measured is what Scheduler::reserve() of the same graphs will take.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/graph/graph.h"

namespace strata {

// Bytes by device, for the largest of the graphs. Memory that two devices share is counted for the
// first of them. Requires: leaves of the graphs are placed, or described (described_buffer.h).
// Errors: those of Scheduler::reserve(), but for RESOURCE_EXHAUSTED.
Result<std::vector<uint64_t>> measure_compute(std::span<Graph* const> graphs,
                                              std::span<Device* const> devices,
                                              const BackendOptions& backend, int n_copies = 1);

}  // namespace strata
