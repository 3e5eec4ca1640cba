// ThreadPins: on which processor each computing thread runs, if that is settled at all.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/topology/exclusive_cpus.h"
#include "runtime/topology/topology.h"

namespace strata {

enum class PinMode : uint8_t {
  automatic,  // pinned if the processors are this process's own (exclusive_cpus.h)
  on,
  off,
};

// "auto", "on" or "off". Errors: INVALID_ARGUMENT.
Result<PinMode> parse_pin_mode(std::string_view text);

struct PinRequest {
  PinMode mode = PinMode::automatic;
  int threads = 1;  // of each pool
  // Pools that compute at the same time on these processors, such as stages in one process or
  // workers on one machine: threads of different pools would be pinned to the same processors.
  int pools = 1;
};

struct ThreadPins {
  // Thread i of a pool runs on cpus[i], one of each core first; empty: nothing is pinned. It holds
  // all processors of the process, so that any number of threads finds its place.
  std::vector<int> cpus;
  std::string text;  // for people: what is done, and why
};

// Of this process. Errors: INVALID_ARGUMENT for `on` with more threads than processors; those of
// the topology for `on`.
Result<ThreadPins> choose_pins(const PinRequest& request);

// The decision. Requires: `cpus` is not empty. Errors: as above.
Result<ThreadPins> decide_pins(const PinRequest& request, std::span<const int> cpus,
                               const CpuClaim& claim, const Topology& topology);

}  // namespace strata
