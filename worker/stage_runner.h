// StageRunner: runs one step on one stage. No thread, no queue, no socket.
//
//   check epoch and step id -> check records -> apply them to the slots, copy KV blocks
//   -> head: tokens of the rows, some of them the tail's -> skip dead rows -> model
//   -> tail: sample; else: look for numbers that are not finite, the frame for the next stage
//
// What a failure does is said at LocalStage, which owns the thread around this.
// Threads: the stage thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/step.h"
#include "worker/slot_table.h"
#include "worker/token_feedback.h"
#include "worker/token_sampler.h"

namespace strata::worker {

struct StageRunnerOptions {
  std::string name;  // in errors
  uint64_t epoch = 0;
  uint32_t slots_max = 0;
  std::shared_ptr<const GgufFile> tokenizer_file = {};  // see LocalStageOptions
};

struct StepOutcome {
  std::optional<StepFrame> forward;  // for the next stage; none at the tail
  // At the tail always; elsewhere for a step that failed here, ahead of the tail's own word.
  std::optional<StepResult> result;
};

class StageRunner {
 public:
  // `feedback` is asked by a head only; not owned.
  StageRunner(std::unique_ptr<StageModel> model, StageRunnerOptions options,
              TokenFeedback& feedback);

  // Never fails as a whole: what went wrong is in the outcome's result.
  StepOutcome run(StepFrame frame, std::optional<TimePoint> deadline);
  // The outcome of a step that is not to be run, with the reason.
  StepOutcome refuse(StepFrame frame, const Status& reason);

  const StageModel& model() const { return *model_; }

 private:
  // A live row with its place in the batch.
  struct LiveRow {
    size_t row;           // in plan.rows
    size_t first_token;   // in the batch
    size_t first_output;  // among the batch's outputs
    size_t n_outputs;
    bool is_finite = true;  // of its incoming activations
  };
  // Everything that the model's batch points into. Kept from step to step for its memory.
  struct Batch {
    void clear();

    std::vector<LiveRow> rows;
    std::vector<int32_t> tokens;
    std::vector<float> activations;
    std::vector<int32_t> positions;
    std::vector<int32_t> sequence;
    std::vector<BatchSequence> sequences;  // the first rows.size() are this batch's
    std::vector<int32_t> outputs;
  };

  bool is_head() const { return model_->options().range.has_embedding; }
  bool is_tail() const { return model_->options().range.has_head; }

  Status check_order(const StepPlan& plan) const;
  Status check_content(const StepFrame& frame);
  Status fill_batch(StepFrame& frame, std::optional<TimePoint> deadline);
  Status take_tokens(const StepPlan& plan, StepRow& row, size_t& next_token,
                     std::optional<TimePoint> deadline);
  void add_row(const StepFrame& frame, size_t row, size_t first_column);
  Result<std::span<const float>> compute();
  void finish_rows(const StepPlan& plan);
  void forward_columns(StepFrame& frame, std::span<const float> columns);
  StepResult sample(const StepPlan& plan, std::span<const float> logits);
  TokenRecord failed_row(const StepPlan& plan, const RowFailure& failure) const;
  TokenRecord sample_row(const StepRow& row, const LiveRow& live, std::span<const float> logits);
  StepResult failed_result(const StepPlan& plan, const Status& reason) const;
  bool apply_records(const StepPlan& plan);
  StepOutcome pass_failure(StepFrame frame);
  StepOutcome fail(StepFrame frame, const Status& reason, bool records_applied);

  std::unique_ptr<StageModel> model_;
  const StageRunnerOptions options_;
  TokenFeedback& feedback_;
  SlotTable slots_;
  TokenSampler sampler_;
  Batch batch_;
  uint64_t last_step_ = 0;
};

}  // namespace strata::worker
