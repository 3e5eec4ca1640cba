#include "backends/remote/stream_gate.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/remote/remote_stage.h"
#include "backends/remote/token.h"

namespace strata::remote {

void StreamGate::expect(Expected expected) {
  const MutexLock lock(mutex_);
  expected_ = std::move(expected);
  admitted_.clear();
}

Status StreamGate::admit(const StreamCaller& caller) {
  const bool brings_steps = caller.method == StreamMethod::steps;
  const char* what = brings_steps ? "steps" : "results";
  const MutexLock lock(mutex_);
  TRY(check_epoch(caller.epoch, expected_.epoch));
  if (expected_.key.empty() || !tokens_equal(caller.key, expected_.key)) {
    return {StatusCode::permission_denied,
            fmt::format("{} does not show the key of epoch {}: its {} are not taken", caller.name,
                        caller.epoch, what),
            "only the nodes of a plan open streams to each other"};
  }
  const std::vector<std::string>& nodes =
      brings_steps ? expected_.steps_from : expected_.results_from;
  if (std::find(nodes.begin(), nodes.end(), caller.name) == nodes.end()) {
    return failed_precondition(
        fmt::format("{} has no {} for this node in epoch {}", caller.name, what, caller.epoch));
  }
  if (!admitted_.emplace(caller.method, caller.name).second) {
    return {StatusCode::already_exists,
            fmt::format("{} has had its stream of {} in epoch {} already", caller.name, what,
                        caller.epoch)};
  }
  return ok_status();
}

}  // namespace strata::remote
