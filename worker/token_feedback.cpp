#include "worker/token_feedback.h"

#include <fmt/format.h>

#include <algorithm>

namespace strata::worker {

void TokenFeedback::deliver(StepResult result) {
  if (result.epoch != epoch_) return;
  const MutexLock lock(mutex_);
  last_step_ = std::max(last_step_, result.step_id);
  for (const TokenRecord& record : result.records) {
    if (record.slot >= tokens_.size()) continue;
    if (record.token < 0 && record.end == SequenceEnd::none) continue;  // logits only
    tokens_[record.slot] = {record.sequence_id, record.position, record.token,
                            record.end != SequenceEnd::none};
  }
  arrived_.notify_all();
}

Result<std::optional<int32_t>> TokenFeedback::wait(const Wanted& wanted,
                                                   std::optional<TimePoint> deadline) {
  const MutexLock lock(mutex_);
  while (true) {
    if (stopped_) return cancelled("the stage was stopped");
    const Token& token = tokens_[wanted.slot];
    if (token.sequence_id == wanted.sequence_id) {
      if (token.has_ended) return std::optional<int32_t>();
      if (token.position == wanted.position && token.token >= 0) return std::optional(token.token);
    }
    // The result is here, and it has no token for this sequence.
    if (last_step_ >= wanted.sample_step) return std::optional<int32_t>();
    if (!deadline) {
      arrived_.wait(mutex_);
    } else if (!arrived_.wait_until(mutex_, *deadline)) {
      return deadline_exceeded(
          fmt::format("the tail's token for position {} of sequence {} did not come in time",
                      wanted.position, wanted.sequence_id));
    }
  }
}

void TokenFeedback::stop() {
  const MutexLock lock(mutex_);
  stopped_ = true;
  arrived_.notify_all();
}

}  // namespace strata::worker
