// Evaluator: runs token-id lists through a pipeline and collects what the logits say.
//
// Drives any StepSink, local or remote, with plain steps: no sampling, every row wants its logits.
// Logits are digested as they come in and not kept, so that a long list costs no memory.
//
// Threads: run() from one thread; deliver() from the pipeline's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/digest.h"
#include "runtime/base/mutex.h"
#include "runtime/base/status.h"
#include "runtime/model/step.h"

namespace strata::serve {

struct EvaluatorOptions {
  uint32_t chunk = 128;        // tokens of one sequence in one step, at most
  uint32_t batch = 1;          // sequences that run together
  uint32_t step_tokens = 128;  // tokens of one step, at most
  uint32_t steps_in_flight = 2;
  uint32_t kv_groups = 1;
  int32_t blocks_per_sequence = 0;  // KV blocks of each group that one sequence may fill
  int32_t n_vocab = 0;
  int32_t top = 0;  // most likely ids kept for each position
  // A step that is not answered within this means that the pipeline hangs.
  std::chrono::minutes step_timeout{10};
  // Sees the logits {n_vocab} of each position, in order, on the pipeline's thread. May be empty.
  std::function<void(size_t sequence, size_t position, std::span<const float> logits)> on_logits =
      {};
};

struct SequenceResult {
  std::vector<float> logits_last;                           // {n_vocab}
  std::vector<int32_t> argmax;                              // {tokens}
  std::vector<std::vector<std::pair<int32_t, float>>> top;  // {tokens}: (id, log-probability)
  std::string digest;  // SHA-256 over the F32 little-endian logits of all positions
};

class Evaluator final : public ResultSink {
 public:
  explicit Evaluator(const EvaluatorOptions& options) : options_(options) {}

  // Requires: `pipeline` delivers its results here; ids lie in the vocabulary; no list is empty;
  // the pipeline has options.batch slots and blocks_per_sequence * batch blocks in each group.
  // Errors: those of a step or of a row; DEADLINE_EXCEEDED for a step that is not answered.
  Result<std::vector<SequenceResult>> run(StepSink& pipeline,
                                          const std::vector<std::vector<int32_t>>& sequences);

  // The pipeline's epoch, 1 unless told otherwise. Before run().
  void use_epoch(uint64_t epoch) { epoch_ = epoch; }
  void deliver(StepResult result) override;
  // Ends run() with this error, such as a lost worker. Threads: any.
  void fail(const Status& status);

 private:
  struct Progress {
    Sha256 digest;
    SequenceResult result;
  };

  StepPlan next_step(const std::vector<std::vector<int32_t>>& sequences, size_t first, size_t count,
                     std::span<uint32_t> done);
  void open_sequences(StepPlan& plan, size_t first, size_t count) const;
  Status wait_until_in_flight(uint32_t steps);
  void take_logits(size_t sequence, std::span<const float> logits) STRATA_REQUIRES(mutex_);

  const EvaluatorOptions options_;
  uint64_t epoch_ = 1;
  uint64_t next_step_id_ = 1;
  Mutex mutex_;
  CondVar changed_;
  uint32_t in_flight_ STRATA_GUARDED_BY(mutex_) = 0;
  Status status_ STRATA_GUARDED_BY(mutex_);
  std::vector<Progress> progress_ STRATA_GUARDED_BY(mutex_);  // {sequences}
};

}  // namespace strata::serve
