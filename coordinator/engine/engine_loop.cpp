#include "coordinator/engine/engine_loop.h"

#include <utility>

namespace strata::coordinator {

EngineLoop::EngineLoop(const EngineLimits& limits)
    : queue_max_(limits.queue_max), engine_(limits), thread_([this] { run(); }) {}

EngineLoop::~EngineLoop() {
  post(Stop{});
  thread_.join();
}

RequestId EngineLoop::submit(Request request, RequestListener listener,
                             std::atomic<RequestId>* id_out, RequestId reserved) {
  const RequestId id = reserved != 0 ? reserved : reserve_id();
  if (id_out != nullptr) *id_out = id;
  {
    MutexLock lock(mutex_);
    if (submits_waiting_ < queue_max_) {
      ++submits_waiting_;
      inbox_.emplace_back(Submit{id, std::move(request), std::move(listener)});
      wake_.notify_one();
      return id;
    }
  }
  listener(RequestFinish{
      .reason = FinishReason::error,
      .status = resource_exhausted("too many requests arrive at once", "try again later"),
      .prompt_tokens = static_cast<uint32_t>(request.prompt.size()),
      .new_tokens = 0});
  return id;
}

void EngineLoop::cancel(RequestId id) { post(Cancel{id}); }

void EngineLoop::attach(const PipelineShape& shape, std::shared_ptr<StepSink> head) {
  context_ = shape.context;
  post(Attach{shape, std::move(head)});
}

void EngineLoop::detach(Status why) { post(Detach{std::move(why)}); }

void EngineLoop::deliver(StepResult result) { post(std::move(result)); }

void EngineLoop::on_pipeline_failure(std::function<void(uint64_t, const Status&)> handler) {
  failure_handler_ = std::move(handler);
}

EngineCounters EngineLoop::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

void EngineLoop::post(Command command) {
  {
    MutexLock lock(mutex_);
    inbox_.push_back(std::move(command));
  }
  wake_.notify_one();  // without the lock, for which it would wait at once
}

std::deque<EngineLoop::Command> EngineLoop::wait_for_commands() {
  const std::optional<TimePoint> wakeup = engine_.next_wakeup();
  MutexLock lock(mutex_);
  counters_ = engine_.counters();
  while (inbox_.empty()) {
    if (!wakeup) {
      wake_.wait(mutex_);
    } else if (!wake_.wait_until(mutex_, *wakeup)) {
      break;
    }
  }
  submits_waiting_ = 0;
  return std::exchange(inbox_, {});
}

void EngineLoop::run() noexcept {
  bool running = true;
  while (running) {
    for (Command& command : wait_for_commands()) {
      EngineActions actions;
      running = handle(std::move(command), actions);
      carry_out(std::move(actions));
      if (!running) break;
    }
    if (!running) break;
    EngineActions actions;
    engine_.tick(clock_.now(), actions);
    engine_.plan(clock_.now(), actions);
    carry_out(std::move(actions));
  }
  head_.reset();
}

bool EngineLoop::handle(Command command, EngineActions& actions) {
  if (auto* submit = std::get_if<Submit>(&command)) {
    engine_.submit(submit->id, std::move(submit->request), std::move(submit->listener),
                   clock_.now(), actions);
  } else if (auto* cancel = std::get_if<Cancel>(&command)) {
    engine_.cancel(cancel->id, actions);
  } else if (auto* attach = std::get_if<Attach>(&command)) {
    if (engine_.attached()) engine_.detach(unavailable("the pipeline was replaced"), actions);
    engine_.attach(attach->shape);
    head_ = std::move(attach->head);
  } else if (auto* detach = std::get_if<Detach>(&command)) {
    engine_.detach(detach->why, actions);
    head_.reset();
  } else if (auto* result = std::get_if<StepResult>(&command)) {
    engine_.deliver(std::move(*result), clock_.now(), actions);
    // A batch of commands may hold several results: the steps that this one made room for go out
    // before the next is looked at, so that the head never waits for the coordinator's clients.
    engine_.plan(clock_.now(), actions);
  } else {
    engine_.detach(unavailable("the coordinator is shutting down"), actions);
    return false;
  }
  return true;
}

void EngineLoop::carry_out(EngineActions actions) {
  if (head_ != nullptr && !actions.pipeline_failed) {
    for (StepPlan& plan : actions.steps)
      head_->submit({.plan = std::move(plan), .activations = {}});
  }
  for (const ClientEvent& event : actions.events) event.listener(event.event);
  if (actions.pipeline_failed) {
    head_.reset();
    if (failure_handler_) failure_handler_(actions.failed_epoch, actions.failure);
  }
}

}  // namespace strata::coordinator
