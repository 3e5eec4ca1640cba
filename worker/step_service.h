// StepService: what comes in from other nodes, to the stage that runs here.
//
//   Stage.Steps   -> check epoch -> LocalStage::submit
//   Stage.Results -> check epoch -> the head's token sink
//
// Thin: tokens are checked by the streams, records by wire.h, slots, blocks and sizes by the stage.
// Threads: set() and clear() from the loader thread, the rest from the acceptor's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/remote/remote_stage.h"
#include "runtime/base/mutex.h"
#include "worker/local_stage.h"

namespace strata::worker {

// A stage of one epoch and the streams that it writes to.
struct RunningStage {
  uint64_t epoch = 0;
  std::unique_ptr<remote::RemoteResults> coordinator;
  std::unique_ptr<remote::RemoteResults> head;
  std::unique_ptr<remote::RemoteStage> next;
  std::unique_ptr<LocalStage> stage;  // last, so that it goes first

  ~RunningStage() {
    if (stage) stage->stop();
  }
};

class StepService final : public remote::PipelineHandler {
 public:
  // Told when the stream of a peer breaks while a stage runs.
  using PeerLost = std::function<void(uint64_t epoch, const std::string& peer, const Status&)>;
  explicit StepService(PeerLost lost) : lost_(std::move(lost)) {}

  // Steps of the stage's epoch are taken from now on.
  void set(std::shared_ptr<RunningStage> stage);
  // Nothing of an epoch below `epoch` is taken any more; the stage that ran, if one did.
  std::shared_ptr<RunningStage> clear(uint64_t epoch);
  std::shared_ptr<RunningStage> running() const;

  Status on_step(const std::string& from, StepFrame frame) override;
  Status on_result(const std::string& from, StepResult result) override;
  void on_stream_closed(const std::string& from, remote::StreamMethod method,
                        const Status& why) override;

 private:
  Result<std::shared_ptr<RunningStage>> stage_of(uint64_t epoch) const;

  const PeerLost lost_;
  mutable Mutex mutex_;
  uint64_t epoch_ STRATA_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<RunningStage> stage_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::worker
