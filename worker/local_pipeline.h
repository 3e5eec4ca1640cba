// LocalPipeline: a whole model as a chain of local stages in one process.
//
// `strata run` without a cluster, `eval --split` and tests use it: the same stages, steps and
// results as over a cluster, without the wire. One stage is the usual case; several compute the
// same bits and exist to show so.
//
// Threads: submit() one caller at a time; results come on the stages' threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/layer_range.h"
#include "runtime/model/stage_model.h"
#include "runtime/model/step.h"
#include "worker/local_stage.h"

namespace strata::worker {

struct LocalPipelineOptions {
  std::vector<LayerRange> ranges;  // as split_layers() gives them
  StageOptions stage;              // `range` is set for each stage
  uint64_t epoch = 1;
  uint32_t slots_max = 64;
  uint32_t queue_max = 64;
};

class LocalPipeline final : public StepSink {
 public:
  // Loads all stages. Results, and steps that failed on any stage, go to `sink` on the stages'
  // threads, which must outlive the pipeline or its stop(). Errors: those of StageModel::load.
  static Result<std::unique_ptr<LocalPipeline>> create(std::shared_ptr<const GgufFile> file,
                                                       const LocalPipelineOptions& options,
                                                       ResultSink& sink);
  ~LocalPipeline() override;

  void submit(StepFrame frame) override { stages_.front()->submit(std::move(frame)); }
  // Stops all stages; see LocalStage::stop().
  void stop();

  size_t stage_count() const { return stages_.size(); }
  const LocalStage& stage(size_t index) const { return *stages_[index]; }

 private:
  LocalPipeline() = default;
  std::vector<std::unique_ptr<LocalStage>> stages_;  // head first
};

// Consecutive ranges with these many layers each; the first has the embedding, the last the head.
// Errors: INVALID_ARGUMENT if the counts do not add up to n_layer, are negative, or leave a stage
// in the middle empty.
Result<std::vector<LayerRange>> split_layers(int32_t n_layer, std::span<const int32_t> counts);

}  // namespace strata::worker
