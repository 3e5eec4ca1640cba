// EngineLoop: the engine's thread. Gives the pure engine its events, its clock and its pipeline.
//
// It sleeps until something happens: a request, a cancellation, a result, a change of pipeline, or
// the next deadline. Nothing polls. Its inbox is bounded: submits by EngineLimits::queue_max,
// results by the steps in flight.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <variant>

#include "coordinator/engine/engine.h"
#include "runtime/base/mutex.h"
#include "runtime/model/step.h"

namespace strata::coordinator {

// Threads: any, except as noted.
class EngineLoop final : public ResultSink {
 public:
  explicit EngineLoop(const EngineLimits& limits);
  // Ends all requests with UNAVAILABLE, then stops.
  ~EngineLoop() override;
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  // Starts the request. `listener` runs on the engine's thread (on the caller's, before submit
  // returns, if the inbox is full) and gets exactly one RequestFinish. `id`, if not null, is set
  // before the first event, for a listener that may cancel its own request.
  // `reserved`: an id of reserve_id(), or 0 for a new one.
  RequestId submit(Request request, RequestListener listener, std::atomic<RequestId>* id = nullptr,
                   RequestId reserved = 0);
  // An id for one later submit().
  RequestId reserve_id() { return next_id_.fetch_add(1); }
  void cancel(RequestId id);

  // Steps go to `head` from now on; it is kept until detach() or failure. A pipeline that is still
  // attached is detached first.
  void attach(const PipelineShape& shape, std::shared_ptr<StepSink> head);
  // All requests end with `why`.
  void detach(Status why);
  // Called by the tail's side with each step's result.
  void deliver(StepResult result) override;

  // Called on the engine's thread when the engine gives a pipeline up: its epoch and the reason.
  // Set before the first attach().
  void on_pipeline_failure(std::function<void(uint64_t epoch, const Status&)> handler);

  EngineCounters counters() const;
  // The most tokens of a sequence of the pipeline that was attached last; 0 before the first one.
  uint32_t context() const { return context_; }

 private:
  struct Submit {
    RequestId id;
    Request request;
    RequestListener listener;
  };
  struct Cancel {
    RequestId id;
  };
  struct Attach {
    PipelineShape shape;
    std::shared_ptr<StepSink> head;
  };
  struct Detach {
    Status why;
  };
  struct Stop {};
  using Command = std::variant<Submit, Cancel, Attach, Detach, StepResult, Stop>;

  void post(Command command);
  void run() noexcept;
  std::deque<Command> wait_for_commands();
  // False after Stop.
  bool handle(Command command, EngineActions& actions);
  void carry_out(EngineActions actions);

  const SystemClock clock_;
  const uint32_t queue_max_;
  Engine engine_;                   // engine thread only
  std::shared_ptr<StepSink> head_;  // engine thread only
  std::function<void(uint64_t, const Status&)> failure_handler_;
  std::atomic<RequestId> next_id_ = 1;
  std::atomic<uint32_t> context_ = 0;

  mutable Mutex mutex_;
  CondVar wake_;
  std::deque<Command> inbox_ STRATA_GUARDED_BY(mutex_);
  uint32_t submits_waiting_ STRATA_GUARDED_BY(mutex_) = 0;
  EngineCounters counters_ STRATA_GUARDED_BY(mutex_);

  std::thread thread_;  // last: starts when everything else exists
};

}  // namespace strata::coordinator
