#include "runtime/topology/thread_pins.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "runtime/base/cpu_list.h"

namespace strata {
namespace {

ThreadPins not_pinned(std::string_view why) {
  return {.cpus = {}, .text = fmt::format("threads are not pinned: {}", why)};
}

// Why threads stay free, whatever the claim; empty if nothing speaks against pinning them.
std::string hindrance(const PinRequest& request, size_t cpu_count) {
  if (request.mode == PinMode::off) return "--pin off";
  if (request.mode == PinMode::automatic && request.pools > 1) {
    return fmt::format("{} pools of threads share the processors", request.pools);
  }
  if (request.mode == PinMode::automatic && static_cast<size_t>(request.threads) > cpu_count) {
    return fmt::format("{} threads on {} processors", request.threads, cpu_count);
  }
  return "";
}

}  // namespace

Result<PinMode> parse_pin_mode(std::string_view text) {
  if (text == "auto") return PinMode::automatic;
  if (text == "on") return PinMode::on;
  if (text == "off") return PinMode::off;
  return invalid_argument(fmt::format("'{}' is none of auto, on and off", text));
}

Result<ThreadPins> decide_pins(const PinRequest& request, std::span<const int> cpus,
                               const CpuClaim& claim, const Topology& topology) {
  if (const std::string why = hindrance(request, cpus.size()); !why.empty()) {
    return not_pinned(why);
  }
  if (request.mode == PinMode::on && static_cast<size_t>(request.threads) > cpus.size()) {
    return invalid_argument(fmt::format("--pin on: {} threads, and {} processor{} to pin them to",
                                        request.threads, cpus.size(), cpus.size() == 1 ? "" : "s"),
                            fmt::format("give --threads {} or fewer, or --pin off", cpus.size()));
  }
  if (request.mode == PinMode::automatic && !claim.is_exclusive) return not_pinned(claim.reason);
  ThreadPins pins{.cpus = topology.one_per_core_first(cpus), .text = {}};
  const std::span<const int> used =
      std::span(pins.cpus).first(static_cast<size_t>(request.threads));
  pins.text = fmt::format("threads are pinned to processors {}: {}", cpu_list_text(used),
                          request.mode == PinMode::on ? "--pin on" : claim.reason);
  return pins;
}

Result<ThreadPins> choose_pins(const PinRequest& request) {
  const std::vector<int> cpus = allowed_cpus(::getpid());
  if (cpus.empty()) return not_pinned("the system does not tell this process's processors");
  if (const std::string why = hindrance(request, cpus.size()); !why.empty()) {
    return not_pinned(why);
  }
  CpuClaim claim;
  if (request.mode == PinMode::automatic) {
    claim = judge_cpus(cpus, "", ::getpid());
    if (!claim.is_exclusive) return not_pinned(claim.reason);
  }
  const Result<Topology> topology = Topology::of_this_machine();
  if (topology.ok()) return decide_pins(request, cpus, claim, *topology);
  if (request.mode == PinMode::on) return topology.status();
  return not_pinned(topology.status().message());
}

}  // namespace strata
