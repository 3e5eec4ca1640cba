#include "coordinator/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/human.h"

namespace strata::coordinator {
namespace {

// No honest peer reports more; beyond it the next epoch could wrap to 0.
constexpr uint64_t kEpochMax = uint64_t{1} << 62;

}  // namespace

Status Membership::join(MemberId id, const remote::Hello& hello, const std::string& address,
                        TimePoint now) {
  TRY(remote::check_node_name(hello.name));
  TRY(remote::check_versions(remote::kProtocolVersion, hello.version));
  if (address.empty()) {
    return invalid_argument(fmt::format("worker '{}' gives no address to reach it at", hello.name));
  }
  if (!hello.cluster_id.empty() && hello.cluster_id != options_.cluster_id) {
    return failed_precondition(
        fmt::format("worker '{}' is a member of cluster {}, and this is cluster {}", hello.name,
                    hello.cluster_id, options_.cluster_id),
        "start that worker anew to move it to this cluster");
  }
  for (const auto& [other_id, other] : members_) {
    if (other.hello.name == hello.name) {
      return Status(
          StatusCode::already_exists,
          fmt::format("a worker named '{}' has joined already, from {} with process id {}",
                      hello.name, other.address, other.hello.process_id),
          "choose another --name, or stop that worker");
    }
    if (other.address == address) {
      return Status(StatusCode::already_exists,
                    fmt::format("worker '{}' is at {} already", other.hello.name, address),
                    "let this worker --listen at another port");
    }
  }
  if (members_.size() >= options_.members_max) {
    return resource_exhausted(fmt::format("{} workers have joined already", members_.size()));
  }
  members_[id] = {.id = id,
                  .order = next_order_++,
                  .hello = hello,
                  .address = address,
                  .last_seen = now,
                  .heartbeat = {},
                  .progress_since = now};
  highest_epoch_ = std::max(highest_epoch_, std::min(hello.last_epoch, kEpochMax));
  return ok_status();
}

bool Membership::heartbeat(MemberId id, const remote::Heartbeat& heartbeat, TimePoint now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return false;
  Member& member = found->second;
  if (heartbeat.progress != member.heartbeat.progress ||
      heartbeat.activity != remote::StageActivity::computing) {
    member.progress_since = now;
  }
  member.heartbeat = heartbeat;
  member.last_seen = now;
  highest_epoch_ = std::max(highest_epoch_, std::min(heartbeat.epoch, kEpochMax));
  return true;
}

Duration Membership::stall_limit(const Member& member) const {
  return options_.stall_timeout + member.heartbeat.step_tokens * token_allowance_;
}

bool Membership::remove(MemberId id) { return members_.erase(id) > 0; }

std::vector<Membership::Dead> Membership::dead(TimePoint now) const {
  std::vector<Dead> dead;
  for (const auto& [id, member] : members_) {
    if (now >= member.last_seen + options_.heartbeat_timeout) {
      dead.push_back({id, unavailable(fmt::format("no heartbeat for {}",
                                                  human_duration(now - member.last_seen)))});
    } else if (now >= member.progress_since + stall_limit(member)) {
      dead.push_back({id, unavailable(fmt::format("its stage has computed on step {} for {}",
                                                  member.heartbeat.step,
                                                  human_duration(now - member.progress_since)))});
    }
  }
  return dead;
}

std::optional<TimePoint> Membership::next_check() const {
  std::optional<TimePoint> next;
  for (const auto& [id, member] : members_) {
    const TimePoint due = std::min(member.last_seen + options_.heartbeat_timeout,
                                   member.progress_since + stall_limit(member));
    if (!next || due < *next) next = due;
  }
  return next;
}

const Member* Membership::find(MemberId id) const {
  const auto found = members_.find(id);
  return found == members_.end() ? nullptr : &found->second;
}

const Member* Membership::find(const std::string& name) const {
  for (const auto& [id, member] : members_) {
    if (member.hello.name == name) return &member;
  }
  return nullptr;
}

std::vector<const Member*> Membership::members() const {
  std::vector<const Member*> list;
  for (const auto& [id, member] : members_) list.push_back(&member);
  std::sort(list.begin(), list.end(),
            [](const Member* a, const Member* b) { return a->order < b->order; });
  return list;
}

}  // namespace strata::coordinator
