// Blame: which workers failures have named, and for how long plans do without them.
//
// A worker that its peers cannot reach, or that never loads, would otherwise be put into each new
// plan although the others suffice. Each failure charges points to those that it names; from
// kLeftOut points on a worker is left out for a while that grows with the points. It stays a
// member, as a spare. Who says that another cannot be reached is charged less, so that a worker
// that accuses one after the other is left out in its turn.
//
//   points  16   24   32   48 ...
//   while   10s  20s  40s  160s, at most 5 minutes
//
// Points fade with time in service, and are forgiven by a person. A worker is known by its name: a
// process that crashes on each load comes back with another identity.
//
// Threads: externally synchronised (the coordinator's control thread).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "runtime/base/clock.h"

namespace strata::coordinator {

// What a failure weighs. Before the pipeline stood it weighs more: it will happen again.
struct Charge {
  static constexpr uint32_t kStartFailed = 16;    // by its own word, or its peer could not reach it
  static constexpr uint32_t kStartAccuser = 12;   // said so of a peer; or one of two, unknown which
  static constexpr uint32_t kServiceFailed = 8;   // a stage hung, a stream to it broke
  static constexpr uint32_t kServiceAccuser = 5;  // said so of a peer; or one of two
  static constexpr uint32_t kDiedLoading = 8;
  static constexpr uint32_t kDiedServing = 1;  // killed and back in a moment is no fault of its own
};

class Blame {
 public:
  static constexpr uint32_t kLeftOut = 16;

  // `why`: a clause for people, "one cannot reach it".
  void charge(const std::string& node, uint32_t points, const std::string& why, TimePoint now);
  // A pipeline has served for a minute with this node.
  void fade(const std::string& node);
  void forgive_all() { records_.clear(); }

  uint32_t points(const std::string& node) const;
  // Plans that can do without this node do, until then; nullopt if it is none of these.
  std::optional<TimePoint> left_out_until(const std::string& node, TimePoint now) const;
  // From when on a pipeline that serves may be given up to use the node: five times as long.
  std::optional<TimePoint> not_for_improvement_until(const std::string& node, TimePoint now) const;
  // Of the last charge; empty if there is none.
  std::string why(const std::string& node) const;

 private:
  struct Record {
    uint32_t points = 0;
    std::string why;
    TimePoint at;  // of the last charge
  };
  static Duration pause(const Record& record);
  const Record* find(const std::string& node) const;

  // At most kNodesMax names.
  static constexpr size_t kNodesMax = 1024;
  std::map<std::string, Record> records_;
};

}  // namespace strata::coordinator
