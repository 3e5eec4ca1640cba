// Intake: requests on their way from the network to the engine.
//
// Turning a request into tokens takes up to seconds for megabytes of text. Several threads do it,
// so that one long prompt does not stop all others; what waits for them is bounded in number and in
// bytes; and whose client goes away meanwhile is taken out at once, or ended as soon as the thread
// that works on it is done.
//
//   add() -> waiting -> [a thread] start(request) -> engine
//
// Threads: any.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <set>
#include <thread>
#include <vector>

#include "backends/remote/client_records.h"
#include "coordinator/generator.h"
#include "runtime/base/mutex.h"

namespace strata::coordinator {

struct IntakeLimits {
  uint32_t threads = 2;
  size_t requests_max = 1024;               // that wait
  uint64_t bytes_max = uint64_t{64} << 20;  // of them together: 16 of the largest there are
};

class Intake {
 public:
  // As Generator::start() and cancel(); must be safe to call from several threads.
  struct Target {
    std::function<void(const remote::GenerateRequest&, AnswerListener, RequestId)> start;
    std::function<void(RequestId)> cancel;
  };

  Intake(const IntakeLimits& limits, Target target);
  ~Intake();  // as stop()
  Intake(const Intake&) = delete;
  Intake& operator=(const Intake&) = delete;

  // Returns at once. What does not fit ends with RESOURCE_EXHAUSTED, before this returns.
  // Requires: `id` was never used before.
  void add(RequestId id, remote::GenerateRequest request, AnswerListener listener);
  // The client has gone. Never waits for the work on any request.
  void cancel(RequestId id);
  // Drops what waits, and returns once no thread works any more. Any number of times.
  void stop();

 private:
  struct Waiting {
    RequestId id = 0;
    remote::GenerateRequest request;
    AnswerListener listener;
    uint64_t bytes = 0;
  };
  void run() noexcept;
  Status take(Waiting waiting);

  const IntakeLimits limits_;
  const Target target_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Waiting> waiting_ STRATA_GUARDED_BY(mutex_);
  uint64_t waiting_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  std::set<RequestId> in_work_ STRATA_GUARDED_BY(mutex_);
  std::set<RequestId> gone_ STRATA_GUARDED_BY(mutex_);  // of those in work
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  bool has_threads_ = false;          // constant after construction
  std::vector<std::thread> threads_;  // last: start when everything else exists
};

}  // namespace strata::coordinator
