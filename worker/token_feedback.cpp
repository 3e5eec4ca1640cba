#include "worker/token_feedback.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::worker {

void TokenFeedback::deliver(StepResult result) {
  if (result.epoch != epoch_) return;
  {
    const MutexLock lock(mutex_);
    last_step_ = std::max(last_step_, result.step_id);
    for (const TokenRecord& record : result.records) {
      if (record.slot >= tokens_.size()) continue;
      if (record.token < 0 && record.end == SequenceEnd::none) continue;  // logits only
      tokens_[record.slot] = {record.sequence_id, record.position, record.token,
                              record.end != SequenceEnd::none};
    }
  }
  arrived_.notify_all();  // without the lock, on which the stage thread would wait again
}

Result<std::optional<int32_t>> TokenFeedback::wait(const Wanted& wanted,
                                                   std::optional<TimePoint> deadline) {
  const TimePoint begin = SystemClock().now();
  const MutexLock lock(mutex_);
  waits_.waiting = true;
  wanted_ = wanted;
  Result<std::optional<int32_t>> token = wait_for_token(wanted, deadline);
  waits_.waiting = false;
  ++waits_.count;
  waits_.ns += static_cast<uint64_t>((SystemClock().now() - begin).count());
  return token;
}

Result<std::optional<int32_t>> TokenFeedback::wait_for_token(const Wanted& wanted,
                                                             std::optional<TimePoint> deadline) {
  while (true) {
    if (stopped_) return cancelled("the stage was stopped");
    std::optional<int32_t> token;
    if (is_here(wanted, token)) return token;
    if (!deadline) {
      arrived_.wait(mutex_);
    } else if (!arrived_.wait_until(mutex_, *deadline)) {
      return deadline_exceeded(
          fmt::format("the tail's token for position {} of sequence {} did not come in time",
                      wanted.position, wanted.sequence_id));
    }
  }
}

bool TokenFeedback::is_here(const Wanted& wanted, std::optional<int32_t>& token) const {
  const Token& last = tokens_[wanted.slot];
  if (last.sequence_id == wanted.sequence_id) {
    if (last.has_ended) return true;
    if (last.position == wanted.position && last.token >= 0) {
      token = last.token;
      return true;
    }
  }
  // The result is here, and it has no token for this sequence.
  return last_step_ >= wanted.sample_step;
}

TokenFeedback::Waits TokenFeedback::waits() const {
  const MutexLock lock(mutex_);
  Waits waits = waits_;
  std::optional<int32_t> token;
  waits.waiting = waits.waiting && !is_here(wanted_, token);
  return waits;
}

void TokenFeedback::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  arrived_.notify_all();
}

}  // namespace strata::worker
