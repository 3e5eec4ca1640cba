#include "tests/support/model_runner.h"

#include <algorithm>

#include "backends/backends.h"
#include "runtime/base/checked_math.h"
#include "runtime/device/registry.h"
#include "runtime/graph/ops.h"

namespace strata::test {
namespace {

struct OpenModel {
  std::shared_ptr<GgufFile> file;
  Hparams hparams;
  std::unique_ptr<DeviceRegistry> devices;
  worker::LocalPipelineOptions pipeline;
  int32_t blocks_per_sequence = 0;
};

Result<OpenModel> open_model(const std::string& path, size_t context, const RunSetup& setup) {
  OpenModel model;
  model.file = TRY(GgufFile::open(path));
  model.hparams = TRY(read_hparams(*model.file));
  model.devices = std::make_unique<DeviceRegistry>();
  TRY(register_all(*model.devices, {.isa = setup.isa}));
  std::vector<int32_t> counts = setup.split;
  if (counts.empty()) counts = {model.hparams.n_layer};
  model.pipeline.ranges = TRY(worker::split_layers(model.hparams.n_layer, counts));
  model.pipeline.slots_max = setup.batch;
  model.blocks_per_sequence =
      static_cast<int32_t>(divide_up(static_cast<int64_t>(context), ops::kKvBlockPositions));
  StageOptions& stage = model.pipeline.stage;
  stage.kv.type = setup.kv_type;
  stage.kv.group_blocks.assign(model.hparams.kv_groups.size(),
                               model.blocks_per_sequence * static_cast<int32_t>(setup.batch));
  stage.max_batch_tokens = static_cast<int32_t>(
      std::min<size_t>(setup.chunk, std::max<size_t>(context, 1)) * setup.batch);
  stage.max_outputs = stage.max_batch_tokens;
  stage.max_sequences = static_cast<int32_t>(setup.batch);
  stage.max_context = static_cast<int32_t>(context);
  stage.devices = model.devices->devices();
  stage.backend.threads = setup.threads;
  stage.load.threads = 1;
  stage.load.mapped = setup.mapped;
  return model;
}

// Collects the tokens of slot 0 until `count` have come or a step failed.
class TokenCollector final : public ResultSink {
 public:
  explicit TokenCollector(size_t count) : count_(count) {}

  void deliver(StepResult result) override {
    const MutexLock lock(mutex_);
    if (status_.ok()) status_ = result.status;
    for (const TokenRecord& record : result.records) {
      if (status_.ok()) status_ = record.error;
      if (record.token >= 0) tokens_.push_back(record.token);
    }
    changed_.notify_all();
  }

  Result<std::vector<int32_t>> wait() {
    const MutexLock lock(mutex_);
    while (tokens_.size() < count_ && status_.ok()) changed_.wait(mutex_);
    if (!status_.ok()) return status_;
    return tokens_;
  }

 private:
  const size_t count_;
  Mutex mutex_;
  CondVar changed_;
  Status status_ STRATA_GUARDED_BY(mutex_);
  std::vector<int32_t> tokens_ STRATA_GUARDED_BY(mutex_);
};

StepPlan prompt_step(const OpenModel& model, const std::vector<int32_t>& prompt, uint32_t count) {
  StepPlan plan;
  plan.epoch = 1;
  plan.step_id = 1;
  OpenSequence& open = plan.opens.emplace_back();
  open.sequence_id = 77;
  open.prompt_tokens = static_cast<uint32_t>(prompt.size());
  open.max_new_tokens = count;
  open.sampling.temperature = 0;
  for (uint32_t group = 0; group < model.hparams.kv_groups.size(); ++group) {
    for (int32_t i = 0; i < model.blocks_per_sequence; ++i) {
      plan.block_changes.push_back(
          {.slot = 0, .group = group, .index = static_cast<uint32_t>(i), .block = i});
    }
  }
  plan.rows.push_back({.slot = 0,
                       .position = 0,
                       .count = static_cast<uint32_t>(prompt.size()),
                       .flags = StepRow::sample});
  plan.tokens = prompt;
  return plan;
}

}  // namespace

Result<std::vector<serve::SequenceResult>> evaluate(const std::string& model_path,
                                                    const Sequences& sequences,
                                                    const RunSetup& setup) {
  size_t context = 0;
  for (const auto& tokens : sequences) context = std::max(context, tokens.size());
  const OpenModel model = TRY(open_model(model_path, context, setup));
  serve::Evaluator evaluator(
      {.chunk = setup.chunk,
       .batch = setup.batch,
       .step_tokens = static_cast<uint32_t>(model.pipeline.stage.max_batch_tokens),
       .kv_groups = static_cast<uint32_t>(model.hparams.kv_groups.size()),
       .blocks_per_sequence = model.blocks_per_sequence,
       .n_vocab = model.hparams.n_vocab,
       .on_logits = setup.on_logits});
  const std::unique_ptr<worker::LocalPipeline> pipeline =
      TRY(worker::LocalPipeline::create(model.file, model.pipeline, evaluator));
  return evaluator.run(*pipeline, sequences);
}

Result<std::vector<std::string>> logits_digests(const std::string& model_path,
                                                const Sequences& sequences, const RunSetup& setup) {
  std::vector<std::string> digests;
  for (serve::SequenceResult& result : TRY(evaluate(model_path, sequences, setup))) {
    digests.push_back(std::move(result.digest));
  }
  return digests;
}

Result<std::vector<int32_t>> generate_greedy(const std::string& model_path,
                                             const std::vector<int32_t>& prompt, uint32_t count,
                                             const RunSetup& setup) {
  const OpenModel model = TRY(open_model(model_path, prompt.size() + count, setup));
  TokenCollector collector(count);
  const std::unique_ptr<worker::LocalPipeline> pipeline =
      TRY(worker::LocalPipeline::create(model.file, model.pipeline, collector));
  pipeline->submit({.plan = prompt_step(model, prompt, count), .activations = {}});
  for (uint32_t i = 1; i < count; ++i) {
    StepPlan plan;
    plan.epoch = 1;
    plan.step_id = i + 1;
    plan.rows.push_back({.slot = 0,
                         .position = static_cast<uint32_t>(prompt.size()) + i - 1,
                         .count = 1,
                         .flags = StepRow::sample | StepRow::input_from_tail});
    pipeline->submit({.plan = std::move(plan), .activations = {}});
  }
  return collector.wait();
}

Result<std::vector<std::vector<float>>> layer_outputs(const std::string& model_path,
                                                      const std::vector<int32_t>& tokens) {
  const OpenModel model = TRY(open_model(model_path, tokens.size(), {}));
  std::vector<int32_t> positions;
  std::vector<int32_t> blocks;
  for (size_t i = 0; i < tokens.size(); ++i) positions.push_back(static_cast<int32_t>(i));
  for (int32_t i = 0; i < model.blocks_per_sequence; ++i) blocks.push_back(i);
  const std::vector<int32_t> sequence(tokens.size(), 0);
  BatchSequence tables;
  tables.tables.assign(model.hparams.kv_groups.size(), blocks);
  std::vector<float> stream;
  std::vector<std::vector<float>> outputs;
  for (int32_t layer = 0; layer < model.hparams.n_layer; ++layer) {
    StageOptions options = model.pipeline.stage;
    options.range = {.begin = layer, .end = layer + 1, .has_embedding = layer == 0};
    const std::unique_ptr<StageModel> stage = TRY(StageModel::load(model.file, options));
    const std::span<const float> output = TRY(stage->run({.tokens = tokens,
                                                          .activations = stream,
                                                          .positions = positions,
                                                          .sequence = sequence,
                                                          .sequences = {&tables, 1},
                                                          .outputs = {}}));
    stream.assign(output.begin(), output.end());
    outputs.emplace_back(stream.end() - model.hparams.n_embd, stream.end());
  }
  return outputs;
}

}  // namespace strata::test
