// Membership: who is in the cluster and alive.
//
// Pure: joins, heartbeats and time go in, verdicts come out. A member is dead when its stream ends
// (at once for a killed process), when its heartbeats stop (frozen, cut off), or when it beats but
// its stage makes no progress although a step is being computed (a hung thread).
//
// A member is named for people and identified by its process: another process with a name in use is
// refused by name, and so is a process that was a member of another cluster.
//
// Threads: externally synchronised (the coordinator's control thread).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/remote/cluster_records.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"

namespace strata::coordinator {

// A Join stream; never reused.
using MemberId = uint64_t;

struct MembershipOptions {
  std::string cluster_id;  // a worker that was a member of another one is refused
  Duration heartbeat_interval = std::chrono::milliseconds(500);
  // A frozen or cut-off worker is given up after this.
  Duration heartbeat_timeout = std::chrono::milliseconds(4000);
  // A stage that computes on one step for so long, and for the token allowance for each of the
  // step's tokens, hangs. Waiting for a step or for the tail's token is no fault of its own.
  Duration stall_timeout = std::chrono::seconds(30);
  uint32_t members_max = 256;
};

struct Member {
  MemberId id = 0;
  uint64_t order = 0;  // of joining; kept when the same process comes back
  remote::Hello hello;
  std::string address;  // where others reach it
  TimePoint last_seen;
  remote::Heartbeat heartbeat;  // the last one
  TimePoint progress_since;     // when its progress counter last moved, or it did not compute
};

class Membership {
 public:
  explicit Membership(const MembershipOptions& options) : options_(options) {}

  // Errors: ALREADY_EXISTS naming the member in the way; INVALID_ARGUMENT for a name or address
  // that is none; FAILED_PRECONDITION for another protocol, kernel contract or cluster;
  // RESOURCE_EXHAUSTED for too many members. The same process over a new stream is a new member:
  // the caller removes the old one first.
  Status join(MemberId id, const remote::Hello& hello, const std::string& address, TimePoint now);
  // False if there is no such member (it was given up before).
  bool heartbeat(MemberId id, const remote::Heartbeat& heartbeat, TimePoint now);
  // False if there is no such member.
  bool remove(MemberId id);

  struct Dead {
    MemberId id = 0;
    Status why;
  };
  // Members that must be given up now; the caller removes them.
  std::vector<Dead> dead(TimePoint now) const;
  // When dead() may next find somebody.
  std::optional<TimePoint> next_check() const;

  const Member* find(MemberId id) const;
  const Member* find(const std::string& name) const;
  // In order of joining.
  std::vector<const Member*> members() const;
  size_t size() const { return members_.size(); }
  // The highest epoch that any member has ever reported.
  uint64_t highest_epoch() const { return highest_epoch_; }

  // How long a stage may compute on one step, by the step's tokens.
  void set_token_allowance(Duration allowance) { token_allowance_ = allowance; }
  Duration stall_limit(const Member& member) const;

 private:
  MembershipOptions options_;
  Duration token_allowance_{};
  std::map<MemberId, Member> members_;
  uint64_t next_order_ = 1;
  uint64_t highest_epoch_ = 0;
};

}  // namespace strata::coordinator
