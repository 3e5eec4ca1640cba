#include "worker/local_pipeline.h"

#include <fmt/format.h>

#include <numeric>

namespace strata::worker {

Result<std::unique_ptr<LocalPipeline>> LocalPipeline::create(std::shared_ptr<const GgufFile> file,
                                                             const LocalPipelineOptions& options,
                                                             ResultSink& sink) {
  if (options.ranges.empty()) return invalid_argument("a pipeline without stages");
  std::unique_ptr<LocalPipeline> pipeline(new LocalPipeline());
  for (const LayerRange& range : options.ranges) {
    StageOptions stage = options.stage;
    stage.range = range;
    const std::string name = layer_range_text(range);
    std::unique_ptr<StageModel> model = TRY(StageModel::load(file, stage).with_context(name));
    std::unique_ptr<LocalStage> local =
        TRY(LocalStage::create(std::move(model), {.name = name,
                                                  .epoch = options.epoch,
                                                  .slots_max = options.slots_max,
                                                  .queue_max = options.queue_max,
                                                  .tokenizer_file = file}));
    pipeline->stages_.push_back(std::move(local));
  }
  const std::vector<std::unique_ptr<LocalStage>>& stages = pipeline->stages_;
  for (size_t i = stages.size(); i-- > 0;) {
    LocalStage::Wiring wiring;
    if (i + 1 < stages.size()) {
      wiring.next = stages[i + 1].get();
    } else {
      wiring.sinks.push_back(&stages.front()->token_sink());
    }
    wiring.sinks.push_back(&sink);
    TRY(stages[i]->connect(std::move(wiring)));
  }
  return pipeline;
}

LocalPipeline::~LocalPipeline() { stop(); }

void LocalPipeline::stop() {
  // Head first: a stage that has stopped takes no more from the one before it.
  for (const std::unique_ptr<LocalStage>& stage : stages_) stage->stop();
}

Result<std::vector<LayerRange>> split_layers(int32_t n_layer, std::span<const int32_t> counts) {
  if (counts.empty()) return invalid_argument("a split without stages");
  std::vector<LayerRange> ranges;
  int64_t begin = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool is_first = i == 0;
    const bool is_last = i + 1 == counts.size();
    if (counts[i] < 0 || begin + counts[i] > n_layer) break;
    if (counts[i] == 0 && !is_first && !is_last) {
      return invalid_argument(fmt::format("stage {} of the split has no layer", i + 1),
                              "only the first and the last stage may be without layers");
    }
    ranges.push_back({.begin = static_cast<int32_t>(begin),
                      .end = static_cast<int32_t>(begin + counts[i]),
                      .has_embedding = is_first,
                      .has_head = is_last});
    begin += counts[i];
  }
  if (ranges.size() != counts.size() || begin != n_layer) {
    return invalid_argument(fmt::format(
        "the split's layers must be 0 or more each and add up to the model's {}", n_layer));
  }
  return ranges;
}

}  // namespace strata::worker
