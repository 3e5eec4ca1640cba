// StepService: what comes in from other nodes, to the stage that runs here.
//
//   Stage.Steps   -> check epoch -> LocalStage::submit
//   Stage.Results -> check epoch -> the head's token sink
//
// Whose streams are let in is the gate's to say (stream_gate.h). Each brings its steps or results
// in order and without gaps; what is out of order ends the stream, and with it the epoch, since
// tokens could no longer be told apart. Tokens are checked by the streams, records by wire.h,
// slots, blocks and sizes by the stage. Threads: expect(), set() and clear() from the loader
// thread, the rest from the acceptor's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/remote/remote_stage.h"
#include "backends/remote/stream_gate.h"
#include "runtime/base/mutex.h"
#include "worker/local_stage.h"

namespace strata::worker {

// A stage of one epoch and the streams that it writes to.
struct RunningStage {
  uint64_t epoch = 0;
  uint64_t last_step = 0;    // that came in; these two are the acceptor's thread's
  uint64_t last_result = 0;  // of the tail
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

  // These streams are let in from now on.
  void expect(remote::StreamGate::Expected streams) { gate_.expect(std::move(streams)); }
  // Steps of the stage's epoch are taken from now on.
  void set(std::shared_ptr<RunningStage> stage);
  // Nothing of an epoch below `epoch` is taken any more; the stage that ran, if one did.
  std::shared_ptr<RunningStage> clear(uint64_t epoch);
  std::shared_ptr<RunningStage> running() const;

  Status on_stream_open(const remote::StreamCaller& caller) override;
  Status on_large_frame(const remote::StreamCaller& caller, uint64_t step) override;
  Status on_step(const std::string& from, StepFrame frame) override;
  Status on_result(const std::string& from, StepResult result) override;
  void on_stream_closed(const remote::StreamCaller& caller, const Status& why) override;

 private:
  Result<std::shared_ptr<RunningStage>> stage_of(uint64_t epoch) const;

  const PeerLost lost_;
  remote::StreamGate gate_;
  mutable Mutex mutex_;
  uint64_t epoch_ STRATA_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<RunningStage> stage_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::worker
