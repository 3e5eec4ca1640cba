// TokenFeedback: the head's memory of what the tail sampled.
//
// The coordinator sends step k + 1 before k returns, with "the token the tail sampled for that
// position" as input. The head's stage thread waits here until the tail's result has come in. Of
// each slot only the last token is kept: the tail cannot be further, since its next one needs the
// head first.
//
// Threads: deliver() and stop() from any thread, wait() from the stage thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/model/step.h"

namespace strata::worker {

class TokenFeedback final : public ResultSink {
 public:
  // Results of another epoch are ignored.
  TokenFeedback(uint64_t epoch, uint32_t slots_max) : epoch_(epoch), tokens_(slots_max) {}

  // Copies the tokens, blocks on nothing else.
  void deliver(StepResult result) override;

  struct Wanted {
    uint32_t slot = 0;
    uint64_t sequence_id = 0;
    uint32_t position = 0;     // of the token
    uint64_t sample_step = 0;  // the step whose result holds it
  };
  // The token, or none if the sequence has ended: by its last token, by an error of its row, or
  // because the step that should have sampled it failed somewhere.
  // Errors: DEADLINE_EXCEEDED, CANCELLED after stop().
  Result<std::optional<int32_t>> wait(const Wanted& wanted, std::optional<TimePoint> deadline);

  void stop();

  // What waiting has taken so far, for who watches the stage.
  struct Waits {
    bool waiting = false;  // now, and for something that is not here yet
    uint64_t count = 0;    // ended ones
    uint64_t ns = 0;       // of the ended ones together
  };
  Waits waits() const;

 private:
  struct Token {
    uint64_t sequence_id = 0;
    uint32_t position = 0;
    int32_t token = -1;
    bool has_ended = false;
  };

  Result<std::optional<int32_t>> wait_for_token(const Wanted& wanted,
                                                std::optional<TimePoint> deadline)
      STRATA_REQUIRES(mutex_);
  // True once there is an answer: the token, or none.
  bool is_here(const Wanted& wanted, std::optional<int32_t>& token) const STRATA_REQUIRES(mutex_);

  const uint64_t epoch_;
  mutable Mutex mutex_;
  CondVar arrived_;
  std::vector<Token> tokens_ STRATA_GUARDED_BY(mutex_);
  uint64_t last_step_ STRATA_GUARDED_BY(mutex_) = 0;
  bool stopped_ STRATA_GUARDED_BY(mutex_) = false;
  Waits waits_ STRATA_GUARDED_BY(mutex_);
  Wanted wanted_ STRATA_GUARDED_BY(mutex_);  // while waiting
};

}  // namespace strata::worker
