#include "coordinator/membership.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/human.h"

namespace strata::coordinator {
namespace {

// No honest peer reports more; beyond it the next epoch could wrap to 0.
constexpr uint64_t kEpochMax = uint64_t{1} << 62;

}  // namespace

Result<Membership::Joined> Membership::join(MemberId id, const remote::Hello& hello,
                                            const std::string& address, TimePoint now) {
  TRY(remote::check_node_name(hello.name));
  TRY(remote::check_versions(remote::kProtocolVersion, hello.version));
  if (address.empty()) {
    return invalid_argument(fmt::format("worker '{}' gives no address to reach it at", hello.name));
  }
  Joined joined;
  uint64_t order = next_order_;
  for (const auto& [other_id, other] : members_) {
    if (!hello.identity.empty() && other.hello.identity == hello.identity) {
      joined.replaced = other_id;
      order = other.order;
      continue;
    }
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
  if (!joined.replaced && members_.size() >= options_.members_max) {
    return resource_exhausted(fmt::format("{} workers have joined already", members_.size()));
  }
  if (joined.replaced) members_.erase(*joined.replaced);
  if (!joined.replaced) ++next_order_;
  members_[id] = {.id = id,
                  .order = order,
                  .hello = hello,
                  .address = address,
                  .last_seen = now,
                  .heartbeat = {},
                  .progress_since = now};
  highest_epoch_ = std::max(highest_epoch_, std::min(hello.last_epoch, kEpochMax));
  return joined;
}

bool Membership::heartbeat(MemberId id, const remote::Heartbeat& heartbeat, TimePoint now) {
  const auto found = members_.find(id);
  if (found == members_.end()) return false;
  Member& member = found->second;
  if (heartbeat.progress != member.heartbeat.progress || !heartbeat.busy) {
    member.progress_since = now;
  }
  member.heartbeat = heartbeat;
  member.last_seen = now;
  highest_epoch_ = std::max(highest_epoch_, std::min(heartbeat.epoch, kEpochMax));
  return true;
}

bool Membership::remove(MemberId id) { return members_.erase(id) > 0; }

std::vector<Membership::Dead> Membership::dead(TimePoint now) const {
  std::vector<Dead> dead;
  for (const auto& [id, member] : members_) {
    if (now >= member.last_seen + options_.heartbeat_timeout) {
      dead.push_back({id, unavailable(fmt::format("no heartbeat for {}",
                                                  human_duration(now - member.last_seen)))});
    } else if (now >= member.progress_since + options_.stall_timeout) {
      dead.push_back({id, unavailable(fmt::format("its stage has computed one step for {}",
                                                  human_duration(now - member.progress_since)))});
    }
  }
  return dead;
}

std::optional<TimePoint> Membership::next_check() const {
  std::optional<TimePoint> next;
  for (const auto& [id, member] : members_) {
    const TimePoint due = std::min(member.last_seen + options_.heartbeat_timeout,
                                   member.progress_since + options_.stall_timeout);
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
