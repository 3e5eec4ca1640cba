// Engine: the step function of the coordinator, as a pure state machine.
//
// Events go in (a request, a cancellation, a step's result, a new or a lost pipeline, time), steps
// to send and events for clients come out. It holds no thread, socket or clock: engine_loop.h gives
// it those. A request's way through it:
//
//   submit -> queue -> slot and blocks -> chunks of its prompt -> decoding rows -> finish
//                ^------------- pushed out for want of blocks ----------'
//
// Steps are sent ahead: step k+1 leaves before k returns, its rows taking "the token that the tail
// samples for this position" as input. What a sequence's later rows do after it has ended is
// dropped here (and skipped by the stages, which see the end before the coordinator does).
// Block ids, slots and step ids belong to one epoch of a pipeline and end with it.
//
// Threads: engine thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "coordinator/engine/batcher.h"
#include "coordinator/engine/block_manager.h"
#include "coordinator/engine/request.h"
#include "coordinator/engine/sequence.h"
#include "runtime/base/clock.h"
#include "runtime/model/step.h"

namespace strata::coordinator {

// What the engine must know of a pipeline. Made by whoever loaded the stages.
struct PipelineShape {
  uint64_t epoch = 1;
  uint32_t stage_count = 1;
  std::vector<KvGroupShape> groups;
  uint32_t context = 0;  // the most tokens of one sequence
  int32_t vocab_size = 0;
  uint32_t slots = 16;           // sequences that are live at once
  uint32_t outputs_max = 0;      // positions of one step whose logits the tail computes; 0: all
  uint32_t step_tokens = 512;    // the most tokens of one step
  uint32_t prefill_chunk = 0;    // see BatchLimits
  uint32_t steps_in_flight = 0;  // 0: stage_count + 1
  // What each token of a step adds to the time that the step is given, see EngineLimits.
  Duration token_allowance{};
};

struct EngineLimits {
  uint32_t queue_max = 256;  // requests that wait for a slot
  // A step that has been the oldest one for so long, and for PipelineShape::token_allowance for
  // each of its tokens, without a result means that the pipeline hangs.
  Duration step_timeout = std::chrono::seconds(30);
};

struct ClientEvent {  // for one request's listener
  RequestId request_id = 0;
  RequestListener listener;
  RequestEvent event;
};

// What the caller does after each event: send the steps, in order, then tell the clients.
struct EngineActions {
  std::vector<StepPlan> steps;
  std::vector<ClientEvent> events;
  bool pipeline_failed = false;  // the engine gave the pipeline up, as `failure` says
  uint64_t failed_epoch = 0;
  Status failure;
};

struct EngineCounters {
  uint32_t queued = 0;
  uint32_t live = 0;
  uint32_t steps_in_flight = 0;
  uint64_t steps_sent = 0;
  uint64_t steps_done = 0;  // that came back whole
  uint64_t busy_ns = 0;     // what the stages computed on them, all stages together
  uint64_t tokens_sampled = 0;
  uint64_t prompt_tokens = 0;
  uint64_t pushed_out = 0;
};

class Engine {
 public:
  explicit Engine(const EngineLimits& limits);

  // Steps go to this pipeline from now on. Requires: none attached; stage_count, context, slots and
  // vocab_size at least 1, step_tokens at least 2.
  void attach(const PipelineShape& shape);
  // The pipeline is gone: every request ends with `why`, and new ones are refused with it until the
  // next attach().
  void detach(const Status& why, EngineActions& actions);
  bool attached() const { return shape_.has_value(); }
  uint64_t epoch() const { return shape_ ? shape_->epoch : 0; }

  // Errors come as the request's finish: UNAVAILABLE without a pipeline, RESOURCE_EXHAUSTED with a
  // full queue, INVALID_ARGUMENT for what can never run. Requires: `id` was never used before.
  void submit(RequestId id, Request request, RequestListener listener, TimePoint now,
              EngineActions& actions);
  // Ends the request now, wherever it is. No effect if it has ended.
  void cancel(RequestId id, EngineActions& actions);
  // A result of another epoch is ignored. A step that failed ends the requests in it, the rest goes
  // on; its status may come twice, from the stage and from the tail.
  void deliver(StepResult result, TimePoint now, EngineActions& actions);
  // Ends requests that are past their deadline, and a pipeline that hangs.
  void tick(TimePoint now, EngineActions& actions);
  // Appends the steps that may be sent now. Call after each event.
  void plan(TimePoint now, EngineActions& actions);
  // When tick() has something to do.
  std::optional<TimePoint> next_wakeup() const;

  EngineCounters counters() const;

 private:
  struct RowInFlight {
    uint64_t sequence_id = 0;
    uint32_t count = 0;
    uint32_t end = 0;  // position behind the row
    uint32_t flags = 0;
  };
  struct StepInFlight {
    uint64_t step_id = 0;
    std::vector<RowInFlight> rows = {};
    Duration limit{};     // how long it may be the oldest one
    bool failed = false;  // its sequences have ended, no result is waited for
  };

  Status validate_request(const Request& request) const;
  uint32_t row_tokens_max() const;
  void admit();
  bool plan_step(TimePoint now, EngineActions& actions);
  void limit_outputs(std::vector<std::pair<Sequence*, uint32_t>>& chosen) const;
  bool plan_row(Sequence& sequence, uint32_t count, StepPlan& plan, StepInFlight& step);
  bool make_room(Sequence& sequence, uint32_t count, StepPlan& plan, const StepInFlight& step);
  std::vector<BatchCandidate> candidates() const;
  void push_out(Sequence& sequence);
  void postpone(Sequence& sequence, TimePoint now);
  void requeue(Sequence& sequence);
  void leave_slot(Sequence& sequence);
  OpenSequence open_record(const Sequence& sequence) const;
  Duration step_limit(const StepInFlight& step) const;
  uint32_t step_budget_ms(const StepInFlight& step, TimePoint now) const;

  Status accept(TokenRecord& record, TimePoint now, EngineActions& actions);
  void report_logits(Sequence& sequence, TokenRecord& record, EngineActions& actions);
  void settle(const StepInFlight& step, std::vector<TokenRecord>& records, TimePoint now,
              EngineActions& actions);
  void fail_step(const StepResult& result, EngineActions& actions);
  void pop_failed(TimePoint now);
  void give_up(const Status& why, EngineActions& actions);
  void finish(Sequence& sequence, FinishReason reason, Status status, EngineActions& actions);
  Sequence* find_live(uint64_t sequence_id);

  EngineLimits limits_;
  std::optional<PipelineShape> shape_;
  Status no_pipeline_;
  std::unique_ptr<BlockManager> blocks_;

  std::map<RequestId, std::unique_ptr<Sequence>> requests_;  // all that have not ended
  std::deque<Sequence*> queue_;                              // no slot yet, in order of arrival
  std::vector<Sequence*> live_;                              // on a slot, in order of arrival
  std::unordered_map<uint64_t, Sequence*> by_sequence_id_;
  std::deque<uint32_t> free_slots_;       // first in, first out: a slot rests before it is reused
  std::vector<uint32_t> pending_closes_;  // go with the next step
  std::deque<StepInFlight> in_flight_;
  TimePoint front_since_;  // when the oldest step in flight became the oldest

  uint64_t next_arrival_ = 1;
  uint64_t next_sequence_id_ = 1;
  uint64_t next_step_id_ = 1;
  EngineCounters counters_;
};

}  // namespace strata::coordinator
