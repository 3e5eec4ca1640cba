#include "worker/step_service.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::worker {
namespace {

Status check_next(const std::string& from, const char* what, uint64_t step, uint64_t last) {
  if (step == last + 1) return ok_status();
  return failed_precondition(
      fmt::format("{} sent {} {} where {} was due", from, what, step, last + 1));
}

}  // namespace

void StepService::set(std::shared_ptr<RunningStage> stage) {
  const MutexLock lock(mutex_);
  epoch_ = stage->epoch;
  stage_ = std::move(stage);
}

std::shared_ptr<RunningStage> StepService::clear(uint64_t epoch) {
  const MutexLock lock(mutex_);
  epoch_ = std::max(epoch_, epoch);
  return std::move(stage_);
}

std::shared_ptr<RunningStage> StepService::running() const {
  const MutexLock lock(mutex_);
  return stage_;
}

Result<std::shared_ptr<RunningStage>> StepService::stage_of(uint64_t epoch) const {
  const MutexLock lock(mutex_);
  TRY(remote::check_epoch(epoch, epoch_));
  if (!stage_) {
    return failed_precondition(fmt::format("epoch {} has not begun here yet", epoch));
  }
  return stage_;
}

Status StepService::on_stream_open(const remote::StreamCaller& caller) {
  return gate_.admit(caller);
}

Status StepService::on_large_frame(const remote::StreamCaller& caller, uint64_t step) {
  const std::shared_ptr<RunningStage> running = TRY(stage_of(caller.epoch));
  const bool is_step = caller.method == remote::StreamMethod::steps;
  return check_next(caller.name, is_step ? "step" : "the result of step", step,
                    is_step ? running->last_step : running->last_result);
}

Status StepService::on_step(const std::string& from, StepFrame frame) {
  const std::shared_ptr<RunningStage> running = TRY(stage_of(frame.plan.epoch));
  TRY(check_next(from, "step", frame.plan.step_id, running->last_step));
  running->last_step = frame.plan.step_id;
  running->stage->submit(std::move(frame));
  return ok_status();
}

Status StepService::on_result(const std::string& from, StepResult result) {
  const std::shared_ptr<RunningStage> running = TRY(stage_of(result.epoch));
  if (!running->stage->model().options().range.has_embedding) {
    return failed_precondition(
        fmt::format("{} sent a result to a stage that is not the head", from));
  }
  TRY(check_next(from, "the result of step", result.step_id, running->last_result));
  if (result.step_id > running->last_step) {
    return failed_precondition(fmt::format("{} sent the result of step {}, and step {} is the last",
                                           from, result.step_id, running->last_step));
  }
  running->last_result = result.step_id;
  running->stage->token_sink().deliver(std::move(result));
  return ok_status();
}

void StepService::on_stream_closed(const remote::StreamCaller& caller, const Status& why) {
  if (why.ok() || !lost_) return;
  {
    const MutexLock lock(mutex_);
    if (!stage_ || epoch_ != caller.epoch) return;
  }
  lost_(caller.epoch, caller.name, why);
}

}  // namespace strata::worker
