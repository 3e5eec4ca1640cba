#include "worker/local_stage.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"
#include "worker/stage_runner.h"
#include "worker/token_feedback.h"

namespace strata::worker {
namespace {

struct QueuedStep {
  StepFrame frame;
  std::optional<TimePoint> deadline;
  bool is_over_limit = false;  // kept in order, so that it is refused in order
};

// First in, first out, with all its room from the start: a step in and out allocates nothing.
// Threads: externally synchronised.
class StepRing {
 public:
  explicit StepRing(size_t capacity) : places_(capacity) {}
  bool empty() const { return count_ == 0; }
  size_t size() const { return count_; }
  size_t capacity() const { return places_.size(); }
  const QueuedStep& front() const { return places_[begin_]; }
  // Requires: size() < capacity().
  void push(QueuedStep step) {
    places_[(begin_ + count_) % places_.size()] = std::move(step);
    ++count_;
  }
  // Requires: !empty().
  QueuedStep pop() {
    QueuedStep step = std::move(places_[begin_]);
    begin_ = (begin_ + 1) % places_.size();
    --count_;
    return step;
  }
  void clear() {
    while (!empty()) static_cast<void>(pop());
  }

 private:
  std::vector<QueuedStep> places_;
  size_t begin_ = 0;
  size_t count_ = 0;
};

}  // namespace

struct LocalStage::Impl {
  Impl(std::unique_ptr<StageModel> model, const LocalStageOptions& stage_options)
      : options(stage_options),
        feedback(options.epoch, options.slots_max),
        runner(std::move(model),
               {options.name, options.epoch, options.slots_max, options.tokenizer_file}, feedback),
        queue(size_t{2} * options.queue_max) {}

  const LocalStageOptions options;
  TokenFeedback feedback;
  StageRunner runner;
  Wiring wiring;

  mutable Mutex mutex;
  CondVar changed;
  StepRing queue STRATA_GUARDED_BY(mutex);  // twice queue_max: see submit()
  bool stopping STRATA_GUARDED_BY(mutex) = false;
  bool runs STRATA_GUARDED_BY(mutex) = false;  // the thread
  StageCounters counters STRATA_GUARDED_BY(mutex);
  std::thread thread;

  void loop() noexcept;
  bool take(QueuedStep& step);
  void run(QueuedStep step);
  StepOutcome outcome_of(QueuedStep& step);
};

// Waits for a step. False once the stage is stopping.
bool LocalStage::Impl::take(QueuedStep& step) {
  const MutexLock lock(mutex);
  while (queue.empty() && !stopping) changed.wait(mutex);
  if (stopping) return false;
  step = queue.pop();
  counters.has_step = true;
  counters.step_id = step.frame.plan.step_id;
  counters.step_tokens = step.frame.plan.live_tokens();
  return true;
}

StepOutcome LocalStage::Impl::outcome_of(QueuedStep& step) {
  if (step.is_over_limit) {
    return runner.refuse(
        std::move(step.frame),
        resource_exhausted(fmt::format("more than {} steps in flight", options.queue_max)));
  }
  if (step.deadline && SystemClock().now() >= *step.deadline) {
    return runner.refuse(std::move(step.frame),
                         deadline_exceeded("the step's time was over before it ran"));
  }
  return runner.run(std::move(step.frame), step.deadline);
}

void LocalStage::Impl::run(QueuedStep step) {
  const TimePoint begin = SystemClock().now();
  const uint64_t waited_before = feedback.waits().ns;
  const std::optional<TimePoint> deadline = step.deadline;
  const StepPlan& plan = step.frame.plan;
  const uint32_t tokens = plan.live_tokens();
  uint64_t positions = 0;
  for (const StepRow& row : plan.rows) {
    if ((row.flags & StepRow::dead) == 0) positions += uint64_t{row.position} + row.count;
  }
  StepOutcome outcome = outcome_of(step);
  const TimePoint end = SystemClock().now();
  const uint64_t took = static_cast<uint64_t>((end - begin).count());
  const uint64_t busy_ns = took - std::min(took, feedback.waits().ns - waited_before);
  if (outcome.forward) outcome.forward->plan.busy_ns += busy_ns;
  if (outcome.result) outcome.result->busy_ns += busy_ns;
  {
    const MutexLock lock(mutex);
    counters.has_step = false;
    counters.busy_ns += busy_ns;
    counters.tokens_done += tokens;
    counters.positions_read += positions;
    ++counters.steps_done;
  }
  // A failure is told before the dead step goes on: the tail's answer to that must not overtake it.
  if (outcome.result) {
    for (size_t i = 0; i < wiring.sinks.size(); ++i) {
      const bool last = i + 1 == wiring.sinks.size();
      wiring.sinks[i]->deliver(last ? std::move(*outcome.result) : *outcome.result);
    }
  }
  if (outcome.forward) {
    if (deadline) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(*deadline - end);
      outcome.forward->plan.budget_ms = static_cast<uint32_t>(std::max<int64_t>(1, left.count()));
    }
    wiring.next->submit(std::move(*outcome.forward));
  }
}

void LocalStage::Impl::loop() noexcept {
  ::pthread_setname_np(::pthread_self(), "stage");
  QueuedStep step;
  while (take(step)) run(std::move(step));
  const MutexLock lock(mutex);
  runs = false;
}

LocalStage::LocalStage(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LocalStage::~LocalStage() { stop(); }

Result<std::unique_ptr<LocalStage>> LocalStage::create(std::unique_ptr<StageModel> model,
                                                       const LocalStageOptions& options) {
  if (options.slots_max < 1 || options.queue_max < 1) {
    return invalid_argument("a stage needs at least one slot and one step in its queue");
  }
  return std::unique_ptr<LocalStage>(
      new LocalStage(std::make_unique<Impl>(std::move(model), options)));
}

Status LocalStage::connect(Wiring wiring) {
  const LayerRange& range = model().options().range;
  if (range.has_head == (wiring.next != nullptr)) {
    return invalid_argument(fmt::format("{}: {} {} a next stage", impl_->options.name,
                                        layer_range_text(range),
                                        range.has_head ? "has" : "has not"));
  }
  if (impl_->thread.joinable()) return failed_precondition("the stage is connected already");
  impl_->wiring = std::move(wiring);
  {
    const MutexLock lock(impl_->mutex);
    impl_->runs = true;
  }
  Status started = start_thread(impl_->thread, [impl = impl_.get()] { impl->loop(); });
  if (!started.ok()) {
    const MutexLock lock(impl_->mutex);
    impl_->runs = false;
  }
  return started;
}

void LocalStage::submit(StepFrame frame) {
  QueuedStep step;
  if (frame.plan.budget_ms > 0) {
    step.deadline = SystemClock().now() + std::chrono::milliseconds(frame.plan.budget_ms);
  }
  step.frame = std::move(frame);
  {
    const MutexLock lock(impl_->mutex);
    if (impl_->stopping) return;
    // A refused step keeps its place, but not its payload. Beyond twice the bound not even that:
    // the gap in the step ids then tells the sender.
    if (impl_->queue.size() >= impl_->options.queue_max) {
      step.is_over_limit = true;
      step.frame.activations = {};
      if (impl_->queue.size() == impl_->queue.capacity()) return;
    }
    impl_->queue.push(std::move(step));
  }
  impl_->changed.notify_one();  // without the lock, for which it would wait at once
}

ResultSink& LocalStage::token_sink() {
  STRATA_CHECK(model().options().range.has_embedding, "only the head takes the tail's tokens");
  return impl_->feedback;
}

void LocalStage::stop() {
  {
    const MutexLock lock(impl_->mutex);
    impl_->stopping = true;
    impl_->queue.clear();
    impl_->changed.notify_all();
  }
  impl_->feedback.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

const StageModel& LocalStage::model() const { return impl_->runner.model(); }

StageCounters LocalStage::counters() const {
  const TokenFeedback::Waits waits = impl_->feedback.waits();
  const MutexLock lock(impl_->mutex);
  StageCounters counters = impl_->counters;
  counters.awaiting_token = counters.has_step && waits.waiting;
  if (!counters.has_step && !impl_->queue.empty()) {
    const StepPlan& next = impl_->queue.front().frame.plan;
    counters.has_step = true;
    counters.step_id = next.step_id;
    counters.step_tokens = next.live_tokens();
  }
  if (impl_->stopping && impl_->runs) counters.has_step = true;
  counters.progress = counters.steps_done + waits.count;
  return counters;
}

}  // namespace strata::worker
