// ClusterState: what people and clients are shown; see cluster_state.h.
#include <fmt/format.h>

#include "coordinator/cluster_state.h"
#include "runtime/base/human.h"

namespace strata::coordinator {

Status ClusterState::obstacle() const { return obstacle_; }

// Blame with the time that it lasts; else as the plan says.
std::string ClusterState::why_spare(const Member& member, TimePoint now) const {
  const std::string& node = member.hello.name;
  const auto until = phase_ == ClusterPhase::ready ? blame_.not_for_improvement_until(node, now)
                                                   : blame_.left_out_until(node, now);
  if (until && blame_.points(node) >= Blame::kLeftOut) {
    return fmt::format("left out for {} more, unless it is needed: {}",
                       human_duration(*until - now), blame_.why(node));
  }
  if (!plan_) return {};
  const auto told = spares_told_.find(member.id);
  if (told != spares_told_.end()) return told->second;
  for (const LeftOut& left_out : plan_->left_out) {
    if (left_out.node == node) return left_out.why;
  }
  return "it joined after the plan was made";
}

remote::NodeStatus ClusterState::node_status(const Member& member, TimePoint now) const {
  remote::NodeStatus node;
  node.name = member.hello.name;
  node.address = member.address;
  node.devices = member.hello.devices;
  node.memory_limit_bytes = member.hello.memory_limit_bytes;
  node.used_bytes = member.heartbeat.used_bytes;
  node.steps_done = member.heartbeat.steps_done;
  node.process_id = member.hello.process_id;
  node.hop_us = member.hello.hop_us;
  node.last_heartbeat_ms = static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - member.last_seen).count());
  const StageState* stage = stage_of(member.id);
  if (stage == nullptr) {
    node.state = phase_ == ClusterPhase::waiting ? "joined" : "spare";
    node.detail = why_spare(member, now);
    return node;
  }
  const size_t index = static_cast<size_t>(stage - stages_.data());
  node.range = plan_->stages[index].range;
  node.stage_index = static_cast<uint32_t>(index);
  node.memory = stage->memory;
  if (const auto& times = stage->watch.times()) {
    node.step_us = times->took_us;
    node.forecast_us = times->forecast_us;
  }
  if (stage->watch.is_slow()) node.detail = "slow: " + stage->watch.slow_text();
  node.state = phase_ == ClusterPhase::ready ? "ready" : "loading";
  if (phase_ == ClusterPhase::loading) node.load = member.heartbeat.load;
  return node;
}

remote::ClusterStatus ClusterState::status(TimePoint now) const {
  remote::ClusterStatus status;
  switch (phase_) {
    case ClusterPhase::waiting:
      status.state = was_ready_ ? "degraded" : "waiting";
      break;
    case ClusterPhase::loading:
    case ClusterPhase::starting:
      status.state = "loading";
      break;
    case ClusterPhase::ready:
      status.state = "ready";
      break;
  }
  status.detail = obstacle_.ok() ? "" : obstacle_.to_string();
  status.epoch = epoch_;
  status.model = options_.model;
  status.cluster_id = options_.cluster_id;
  status.version = remote::kProtocolVersion;
  if (plan_) status.predicted_tokens_per_s = plan_->predicted_tokens_per_s();
  for (const Member* member : membership_.members()) {
    status.nodes.push_back(node_status(*member, now));
  }
  return status;
}

}  // namespace strata::coordinator
