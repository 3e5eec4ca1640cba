#include "serve/local_engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/human.h"
#include "runtime/base/log.h"

namespace strata::serve {
namespace {

// Of the free memory, what the model may take: the rest is for the system and this process itself.
constexpr double kUsableShare = 0.9;
constexpr uint32_t kOutputsMin = 16;

uint64_t usable_bytes(const std::vector<Device*>& devices) {
  uint64_t most = 0;
  for (const Device* device : devices) most = std::max(most, device->memory().free_bytes);
  return static_cast<uint64_t>(static_cast<double>(most) * kUsableShare);
}

}  // namespace

Result<uint32_t> choose_context(const Hparams& hparams, uint32_t asked) {
  const uint32_t trained = static_cast<uint32_t>(std::max(hparams.n_ctx_train, 1));
  if (asked == 0) return std::min(trained, kDefaultContext);
  if (asked > static_cast<uint32_t>(kContextMax) || (!hparams.uses_rope && asked > trained)) {
    return invalid_argument(
        fmt::format("--ctx {}: the model takes at most {} tokens", asked,
                    hparams.uses_rope ? static_cast<uint32_t>(kContextMax) : trained));
  }
  return asked;
}

LocalEngine::LocalEngine(uint32_t queue)
    : engine_({.queue_max = queue, .step_timeout = std::chrono::hours(1)}) {}

LocalEngine::~LocalEngine() {
  engine_.detach(unavailable("the model is being closed"));
  if (pipeline_) pipeline_->stop();
}

Result<std::unique_ptr<LocalEngine>> LocalEngine::open(const LocalEngineOptions& options,
                                                       ProgressDisplay& display,
                                                       std::stop_token stop) {
  std::unique_ptr<LocalEngine> engine(new LocalEngine(options.queue));
  TRY(engine->load(options, display, stop));
  return engine;
}

std::vector<int32_t> LocalEngine::split() const {
  std::vector<int32_t> counts;
  for (const LayerRange& range : ranges_) counts.push_back(range.count());
  return counts;
}

// Errors: RESOURCE_EXHAUSTED where the model needs more than there is.
static Status check_fits(const std::string& model, uint64_t need, uint64_t have, uint32_t context) {
  if (need <= have) return ok_status();
  return resource_exhausted(
      fmt::format("short by {}: {} needs {} with a context of {} tokens, this machine has {} free",
                  human_bytes(need - have), model, human_bytes(need), context, human_bytes(have)),
      "take a smaller --ctx, or spread the model over several machines (strata coordinator)");
}

Status LocalEngine::load(const LocalEngineOptions& options, ProgressDisplay& display,
                         std::stop_token stop) {
  file_ = TRY(GgufFile::open(options.model.path));
  const Hparams hparams = TRY(read_hparams(*file_));
  // Before the weights: a model that cannot be spoken to is refused at once.
  generator_ = TRY(coordinator::Generator::create(file_, engine_, options.request_timeout));
  devices_ = TRY(open_devices(options.model));
  const uint32_t context = TRY(choose_context(hparams, options.context));
  const DType kv_type = TRY(parse_kv_type(options.model.kv_type));

  // Prompts whose tokens' probabilities are asked for take many at once.
  const uint32_t outputs = std::max(options.sequences, kOutputsMin);
  const coordinator::ModelProfile profile =
      TRY(coordinator::profile_model(*file_, {.kv_type = kv_type,
                                              .step_tokens = options.step_tokens,
                                              .slots = options.sequences,
                                              .context = context,
                                              .max_outputs = outputs,
                                              .devices = devices_->devices()}));
  const std::vector<uint32_t> blocks =
      coordinator::blocks_for(profile, context, options.sequences, options.step_tokens);
  const coordinator::CostModel cost(profile, blocks);
  TRY(check_fits(profile.name, cost.memory({0, profile.unit_count()}).total(),
                 usable_bytes(devices_->devices()), context));

  worker::LocalPipelineOptions pipeline;
  ranges_ = TRY(stage_ranges(options.model, hparams));
  pipeline.ranges = ranges_;
  pipeline.slots_max = options.sequences;
  StageOptions& stage = pipeline.stage;
  stage.kv.type = kv_type;
  stage.kv.group_blocks.assign(blocks.begin(), blocks.end());
  stage.max_batch_tokens = static_cast<int32_t>(options.step_tokens);
  stage.max_sequences = static_cast<int32_t>(options.sequences);
  stage.max_outputs = static_cast<int32_t>(outputs);
  stage.max_context = static_cast<int32_t>(context);
  stage.devices = devices_->devices();
  stage.backend.threads = options.model.threads;
  pins_ = TRY(pins_of(options.model, ranges_.size()));
  log::debug("{}", pins_.text);
  stage.backend.cpus = pins_.cpus;
  stage.load.mapped = options.model.mapped;
  stage.load.threads = options.model.threads;
  stage.load.progress = [&display](const LoadProgress& progress) {
    display.progress("loading",
                     static_cast<double>(progress.loaded_bytes) /
                         static_cast<double>(std::max<uint64_t>(progress.total_bytes, 1)),
                     human_bytes(progress.total_bytes));
  };
  stage.load.stop = stop;
  auto loaded = worker::LocalPipeline::create(file_, pipeline, engine_);
  if (stop.stop_requested()) return cancelled("interrupted while loading");
  pipeline_ = TRY(std::move(loaded));

  shape_.epoch = pipeline.epoch;
  shape_.stage_count = static_cast<uint32_t>(pipeline.ranges.size());
  for (size_t g = 0; g < blocks.size(); ++g) {
    shape_.groups.push_back({.window = profile.group_windows[g], .block_count = blocks[g]});
  }
  shape_.context = context;
  shape_.vocab_size = hparams.n_vocab;
  shape_.slots = options.sequences;
  shape_.outputs_max = outputs;
  shape_.step_tokens = options.step_tokens;
  shape_.prefill_chunk = options.prefill_chunk;
  engine_.attach(shape_, pipeline_);
  return ok_status();
}

}  // namespace strata::serve
