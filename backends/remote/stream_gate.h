// StreamGate: which streams belong to the epoch that a node is in.
//
// The token says that a caller is of the cluster, not that it has a part in the pipeline. Each plan
// therefore has a key, which the coordinator tells its stages over their Join streams and nobody
// else, and each stage is told whose stream brings its steps and whose its results. A stream that
// does not show the key, or is of another node, or is the second of its kind, is refused at its
// opening; the one that is there goes on untouched.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/remote/activation_stream.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"

namespace strata::remote {

// The name that the coordinator's streams carry.
inline constexpr const char* kCoordinatorNode = "coordinator";

class StreamGate {
 public:
  struct Expected {
    uint64_t epoch = 0;
    std::string key;
    std::vector<std::string> steps_from;    // nodes
    std::vector<std::string> results_from;  // nodes
  };

  // From now on these, once each, and no others.
  void expect(Expected expected);
  // Lets the stream in, or says why not. Errors: FAILED_PRECONDITION for another epoch and for a
  // node that has no such part; PERMISSION_DENIED without the key; ALREADY_EXISTS for a second one.
  Status admit(const StreamCaller& caller);

 private:
  Mutex mutex_;
  Expected expected_ STRATA_GUARDED_BY(mutex_);
  std::set<std::pair<StreamMethod, std::string>> admitted_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::remote
