// LocalStage: a stage that computes in this process, on a thread of its own.
//
//   submit() -> bounded queue -> stage thread: StageRunner (slots, KV blocks, model, sampler)
//            -> next->submit(frame)                     unless it is the tail
//            -> sinks: deliver(result)                  the tail: one for each step, in order;
//                                                       others: only for a step that failed there
//
// The head resolves rows with input_from_tail: it waits until the tail's result with that token has
// come in through token_sink(). The wiring of one process and of many is the same; in a worker,
// `next` is a proxy for the stage on the next node, and gRPC calls submit() and token_sink().
//
// A step that cannot run (wrong epoch or step id, unknown slot, activations of another size, a
// device's error) gives a StepResult with a status that names the stage; the frame goes on without
// live rows, so that later stages stay in step, and its sequences are ended on this stage until
// they are closed. Non-finite logits end one row's sequence only.
//
// Threads: submit() one caller at a time; token_sink().deliver(), stop() and counters any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/step.h"

namespace strata::worker {

struct LocalStageOptions {
  std::string name = "stage";  // in errors: "worker-2 (layers 10-19)"
  uint64_t epoch = 0;
  uint32_t slots_max = 64;  // slots are [0, slots_max)
  uint32_t queue_max = 64;  // steps waiting; one more is refused with RESOURCE_EXHAUSTED
  // Whose tokenizer the tail needs for grammars; null: sequences with a grammar fail.
  std::shared_ptr<const GgufFile> tokenizer_file = {};
};

struct StageCounters {
  uint64_t steps_done = 0;
  uint64_t busy_ns = 0;         // computing; waits for the tail's token are not
  uint64_t tokens_done = 0;     // live tokens of the steps that are done
  uint64_t positions_read = 0;  // of the KV cache, by the rows of these steps
  uint64_t progress = 0;        // grows whenever a step or a wait for the tail's token ends
  // A step is running, or should be: a thread that does not run what waits for it is stuck.
  bool has_step = false;
  bool awaiting_token = false;  // and waits for the tail's token
  uint64_t step_id = 0;         // of the one that runs, or that ran last
  uint32_t step_tokens = 0;     // live tokens of it
};

class LocalStage final : public StepSink {
 public:
  // Where a stage's output goes. Neither is owned; both must outlive the stage or its stop().
  struct Wiring {
    StepSink* next = nullptr;        // null for the tail
    std::vector<ResultSink*> sinks;  // called on the stage thread, in this order
  };

  // The stage is head, tail or both by the model's layer range.
  static Result<std::unique_ptr<LocalStage>> create(std::unique_ptr<StageModel> model,
                                                    const LocalStageOptions& options);
  // Once, before the first submit(): starts the thread. Apart from create() because the tail's
  // sinks include the head's token_sink(), and the head's `next` leads to the tail.
  // Errors: INVALID_ARGUMENT for wiring that does not fit the range.
  Status connect(Wiring wiring);
  // stop(), then frees the model.
  ~LocalStage() override;

  void submit(StepFrame frame) override;

  // The head's ear for the tail's results: give it to the tail's sinks. Requires: has_embedding.
  ResultSink& token_sink();

  // Drops queued steps, lets the running one finish, joins the thread. Afterwards nothing is called
  // any more, and submit() does nothing. Any number of times.
  void stop();

  const StageModel& model() const;
  StageCounters counters() const;

 private:
  struct Impl;
  explicit LocalStage(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::worker
