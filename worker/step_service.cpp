#include "worker/step_service.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::worker {

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

Status StepService::on_step(const std::string&, StepFrame frame) {
  const std::shared_ptr<RunningStage> running = TRY(stage_of(frame.plan.epoch));
  running->stage->submit(std::move(frame));
  return ok_status();
}

Status StepService::on_result(const std::string& from, StepResult result) {
  const std::shared_ptr<RunningStage> running = TRY(stage_of(result.epoch));
  if (!running->stage->model().options().range.has_embedding) {
    return failed_precondition(
        fmt::format("{} sent a result to a stage that is not the head", from));
  }
  running->stage->token_sink().deliver(std::move(result));
  return ok_status();
}

void StepService::on_stream_closed(const std::string& from, remote::StreamMethod,
                                   const Status& why) {
  if (why.ok() || !lost_) return;
  uint64_t epoch = 0;
  {
    const MutexLock lock(mutex_);
    if (!stage_) return;
    epoch = epoch_;
  }
  lost_(epoch, from, why);
}

}  // namespace strata::worker
