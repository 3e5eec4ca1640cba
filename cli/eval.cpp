#include "cli/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/evaluator.h"
#include "cli/local_cluster.h"
#include "cli/model_options.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/log.h"
#include "runtime/graph/ops.h"
#include "worker/local_pipeline.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;
using Sequences = std::vector<std::vector<int32_t>>;

// Logits of one step that are worth holding at once: three copies of them exist for a moment.
constexpr uint64_t kStepLogitsBytesMax = uint64_t{1} << 30;

struct EvalOptions {
  ModelOptions model;
  std::string tokens_path;
  int top = 0;
  int workers = 0;
  uint32_t chunk = 128;
  uint32_t batch = 1;
  bool bits = false;
  bool json = false;
};

Result<std::vector<int32_t>> parse_sequence(const Json& list, size_t index, int32_t n_vocab,
                                            const std::string& path) {
  const auto error = [&](const std::string& what) {
    return invalid_argument(fmt::format("{}: list {} {}", path, index, what),
                            "the file must be a JSON list of lists of token ids");
  };
  if (!list.is_array()) return error("is no list");
  if (list.empty()) return error("is empty");
  std::vector<int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id >= n_vocab) {
      return error(
          fmt::format("has {} at place {}, ids are 0 to {}", id.dump(), ids.size(), n_vocab - 1));
    }
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

Result<Sequences> read_sequences(const std::string& path, int32_t n_vocab) {
  const std::string text = TRY(read_text_file(path));
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array()) {
    return invalid_argument(path + ": not a JSON list",
                            "the file must be a JSON list of lists of token ids");
  }
  Sequences sequences;
  for (const Json& list : json) {
    std::vector<int32_t> ids = TRY(parse_sequence(list, sequences.size(), n_vocab, path));
    sequences.push_back(std::move(ids));
  }
  if (sequences.empty()) return invalid_argument(path + ": no list of token ids in it");
  return sequences;
}

// The KV cache, the context and the largest step that these sequences need.
struct EvalShape {
  int32_t context = 0;
  int32_t blocks_per_sequence = 0;
  uint32_t step_tokens = 0;
};

Result<EvalShape> shape_of(const Sequences& sequences, const Hparams& hparams,
                           const EvalOptions& options) {
  size_t longest = 0;
  for (const auto& tokens : sequences) longest = std::max(longest, tokens.size());
  if (longest > static_cast<size_t>(hparams.n_ctx_train)) {
    if (!hparams.uses_rope || longest > static_cast<size_t>(kContextMax)) {
      return invalid_argument(fmt::format("a list of {} tokens, the model's context is {}", longest,
                                          hparams.n_ctx_train));
    }
    log::warn("a list of {} tokens, the model was trained on {}", longest, hparams.n_ctx_train);
  }
  EvalShape shape;
  shape.context = static_cast<int32_t>(longest);
  shape.blocks_per_sequence =
      static_cast<int32_t>(divide_up(shape.context, ops::kKvBlockPositions));
  const uint64_t affordable =
      std::max<uint64_t>(1, kStepLogitsBytesMax / (uint64_t{4} * hparams.n_vocab));
  shape.step_tokens = static_cast<uint32_t>(
      std::min<uint64_t>({uint64_t{options.chunk} * options.batch,
                          uint64_t{longest} * options.batch, affordable, uint64_t{1} << 16}));
  return shape;
}

// Over worker processes: the coordinator forms the cluster and leaves the pipeline to `evaluator`.
Result<std::vector<SequenceResult>> evaluate_on_workers(const EvalOptions& options,
                                                        const EvalShape& shape,
                                                        const Sequences& sequences,
                                                        Evaluator& evaluator) {
  Signals signals;
  Terminal terminal;
  LocalClusterOptions cluster_options;
  cluster_options.workers = static_cast<uint32_t>(options.workers);
  cluster_options.threads = options.model.threads;
  cluster_options.isa = options.model.isa;
  cluster_options.skip_probe = true;
  ServingOptions& serving = cluster_options.serving;
  serving.model_path = options.model.path;
  serving.context = static_cast<uint32_t>(shape.context);
  serving.sequences = options.batch;
  serving.slots = options.batch;
  serving.step_tokens = std::max(shape.step_tokens, 2U);
  serving.kv_type = options.model.kv_type;
  serving.ignore_windows = true;
  serving.is_quiet = true;
  for (const int layers : options.model.split) {
    serving.split += fmt::format("{}{}", serving.split.empty() ? "" : ",", layers);
  }
  std::promise<std::shared_ptr<StepSink>> head;
  std::once_flag first;  // a later pipeline is of no use: the evaluation has failed by then
  cluster_options.pipeline_user = {
      .started =
          [&](const coordinator::PipelineShape&, std::shared_ptr<StepSink> sink) {
            std::call_once(first, [&] { head.set_value(std::move(sink)); });
          },
      .stopped = [&evaluator](const Status& why) { evaluator.fail(why); },
      .sink = &evaluator};
  const std::unique_ptr<LocalCluster> cluster =
      TRY(LocalCluster::start(cluster_options, terminal, signals));
  TRY(cluster->wait_ready(signals));
  signals.on_signal([&evaluator](int) { evaluator.fail(cancelled("interrupted")); });
  return evaluator.run(*head.get_future().get(), sequences);
}

Result<std::vector<SequenceResult>> evaluate(const EvalOptions& options) {
  std::shared_ptr<GgufFile> file = TRY(GgufFile::open(options.model.path));
  const Hparams hparams = TRY(read_hparams(*file));
  const Sequences sequences = TRY(read_sequences(options.tokens_path, hparams.n_vocab));
  const std::unique_ptr<DeviceRegistry> devices = TRY(open_devices(options.model));
  const EvalShape shape = TRY(shape_of(sequences, hparams, options));

  worker::LocalPipelineOptions pipeline_options;
  pipeline_options.ranges = TRY(stage_ranges(options.model, hparams));
  pipeline_options.slots_max = options.batch;
  StageOptions& stage = pipeline_options.stage;
  stage.kv.type = TRY(parse_kv_type(options.model.kv_type));
  stage.kv.group_blocks.assign(hparams.kv_groups.size(),
                               static_cast<int32_t>(options.batch) * shape.blocks_per_sequence);
  stage.max_batch_tokens = static_cast<int32_t>(shape.step_tokens);
  stage.max_outputs = stage.max_batch_tokens;
  stage.max_sequences = static_cast<int32_t>(options.batch);
  stage.max_context = shape.context;
  stage.devices = devices->devices();
  stage.backend.threads = options.model.threads;
  stage.load.mapped = options.model.mapped;
  stage.load.threads = options.model.threads;

  const size_t stages =
      options.workers > 0 ? static_cast<size_t>(options.workers) : pipeline_options.ranges.size();
  Evaluator evaluator({.chunk = options.chunk,
                       .batch = options.batch,
                       .step_tokens = shape.step_tokens,
                       .steps_in_flight = static_cast<uint32_t>(stages),
                       .kv_groups = static_cast<uint32_t>(hparams.kv_groups.size()),
                       .blocks_per_sequence = shape.blocks_per_sequence,
                       .n_vocab = hparams.n_vocab,
                       .top = options.top});
  if (options.workers > 0) return evaluate_on_workers(options, shape, sequences, evaluator);
  const std::unique_ptr<worker::LocalPipeline> pipeline =
      TRY(worker::LocalPipeline::create(file, pipeline_options, evaluator));
  return evaluator.run(*pipeline, sequences);
}

Json to_json(const SequenceResult& result, const EvalOptions& options) {
  if (options.bits) return result.digest;
  Json json = {{"logits_last", result.logits_last}, {"argmax", result.argmax}};
  if (options.top > 0) json["top"] = result.top;
  return json;
}

void print(const std::vector<SequenceResult>& results, const EvalOptions& options) {
  if (options.json) {
    Json list = Json::array();
    for (const SequenceResult& result : results) list.push_back(to_json(result, options));
    fmt::print("{}\n", list.dump());
    return;
  }
  for (const SequenceResult& result : results) {
    if (options.bits) {
      fmt::print("{}\n", result.digest);
    } else {
      fmt::print("{} tokens, most likely next {} (logit {:.4f})\n", result.argmax.size(),
                 result.argmax.back(),
                 result.logits_last[static_cast<size_t>(result.argmax.back())]);
    }
  }
}

Status run_eval(const EvalOptions& options) {
  const std::vector<SequenceResult> results = TRY(evaluate(options));
  print(results, options);
  return ok_status();
}

}  // namespace

void add_eval_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("eval", "Show a model's logits for lists of token ids");
  auto options = std::make_shared<EvalOptions>();
  add_model_options(command, options->model, "f32");
  command.add_option("--tokens", options->tokens_path, "JSON file: a list of token-id lists")
      ->required();
  command.add_option("--top", options->top, "Also the K most likely ids at each position")
      ->check(CLI::Range(0, 1 << 20));
  command.add_option("--workers", options->workers, "Run over this many local worker processes")
      ->check(CLI::Range(1, 64));
  command.add_option("--chunk", options->chunk, "Tokens of a sequence in one step, at most")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  command.add_option("--batch", options->batch, "Sequences that run together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_flag("--bits", options->bits,
                   "Only SHA-256 over the F32 logits of all positions, one for each list");
  add_json_option(command, context);
  add_example(command, "strata eval -m model.gguf --tokens ids.json --split 10,12,8 --bits");
  command.callback([options, &context] {
    context.run = [options, &context] {
      options->json = context.json;
      return run_eval(*options);
    };
  });
}

}  // namespace strata::cli
