#include "cli/eval.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>

#include "cli/cluster_options.h"
#include "cli/model_options.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"
#include "runtime/base/portable_math.h"
#include "runtime/base/text_table.h"
#include "runtime/base/utf8.h"
#include "runtime/graph/ops.h"
#include "runtime/text/tokenizer.h"
#include "serve/evaluator.h"
#include "serve/local_cluster.h"
#include "worker/local_pipeline.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;
using Sequences = std::vector<std::vector<int32_t>>;

// Logits of one step that are worth holding at once: three copies of them exist for a moment.
constexpr uint64_t kStepLogitsBytesMax = uint64_t{1} << 30;

struct EvalOptions {
  serve::ModelOptions model;
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

struct EvalInput {
  std::shared_ptr<GgufFile> file;
  Hparams hparams;
  Sequences sequences;
};

Result<EvalInput> read_input(const EvalOptions& options) {
  EvalInput input;
  input.file = TRY(GgufFile::open(options.model.path));
  input.hparams = TRY(read_hparams(*input.file));
  input.sequences = TRY(read_sequences(options.tokens_path, input.hparams.n_vocab));
  return input;
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

// Shows how many of the lists' tokens are done.
auto progress_of(const Sequences& sequences, Terminal& terminal) {
  size_t total = 0;
  for (const auto& tokens : sequences) total += tokens.size();
  return [&terminal, total, done = size_t{0}](size_t, size_t, std::span<const float>) mutable {
    ++done;
    terminal.progress("evaluating", static_cast<double>(done) / static_cast<double>(total),
                      human_count(total) + " tokens");
  };
}

// Over worker processes: the coordinator forms the cluster and leaves the pipeline to `evaluator`.
Result<std::vector<serve::SequenceResult>> evaluate_on_workers(
    const EvalOptions& options, const EvalShape& shape, const Sequences& sequences,
    serve::Evaluator& evaluator, Terminal& terminal, const std::stop_token& stop) {
  serve::LocalClusterOptions cluster_options;
  cluster_options.workers = static_cast<uint32_t>(options.workers);
  cluster_options.threads = options.model.threads;
  cluster_options.pin = options.model.pin;
  cluster_options.isa = options.model.isa;
  cluster_options.skip_probe = true;
  serve::ServingOptions& serving = cluster_options.serving;
  serving.digest_folder = user_cache_folder() + "/digests";
  serving.model_path = options.model.path;
  serving.context = static_cast<uint32_t>(shape.context);
  serving.sequences = options.batch;
  serving.slots = options.batch;
  serving.step_tokens = std::max(shape.step_tokens, 2U);
  serving.kv_type = options.model.kv_type;
  serving.max_outputs = shape.step_tokens;
  serving.ignore_windows = true;
  serving.is_quiet = true;
  serving.split = options.model.split;
  std::promise<std::shared_ptr<StepSink>> head;
  std::once_flag first;  // a later pipeline is of no use: the evaluation has failed by then
  cluster_options.pipeline_user = {
      .started =
          [&](const coordinator::PipelineShape& pipeline, std::shared_ptr<StepSink> sink) {
            std::call_once(first, [&] {
              evaluator.use_epoch(pipeline.epoch);
              head.set_value(std::move(sink));
            });
          },
      .stopped = [&evaluator](const Status& why) { evaluator.fail(why); },
      .sink = &evaluator};
  const std::unique_ptr<serve::LocalCluster> cluster =
      TRY(serve::LocalCluster::start(cluster_options, terminal, stop));
  TRY(cluster->wait_ready(stop));
  return evaluator.run(*head.get_future().get(), sequences);
}

Result<std::vector<serve::SequenceResult>> evaluate(const EvalOptions& options,
                                                    const EvalInput& input, Terminal& terminal,
                                                    const std::stop_token& stop) {
  const std::shared_ptr<GgufFile>& file = input.file;
  const Hparams& hparams = input.hparams;
  const Sequences& sequences = input.sequences;
  const std::unique_ptr<DeviceRegistry> devices = TRY(serve::open_devices(options.model));
  const EvalShape shape = TRY(shape_of(sequences, hparams, options));

  worker::LocalPipelineOptions pipeline_options;
  // Over workers the planner reads the split, which may name them.
  StageOptions& stage = pipeline_options.stage;
  if (options.workers == 0) {
    pipeline_options.ranges = TRY(serve::stage_ranges(options.model, hparams));
    const ThreadPins pins = TRY(serve::pins_of(options.model, pipeline_options.ranges.size()));
    log::debug("{}", pins.text);
    stage.backend.cpus = pins.cpus;
  }
  pipeline_options.slots_max = options.batch;
  stage.kv.type = TRY(serve::parse_kv_type(options.model.kv_type));
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
  stage.load.stop = stop;

  const size_t stages =
      options.workers > 0 ? static_cast<size_t>(options.workers) : pipeline_options.ranges.size();
  serve::Evaluator evaluator({.chunk = options.chunk,
                              .batch = options.batch,
                              .step_tokens = shape.step_tokens,
                              .steps_in_flight = static_cast<uint32_t>(stages),
                              .kv_groups = static_cast<uint32_t>(hparams.kv_groups.size()),
                              .blocks_per_sequence = shape.blocks_per_sequence,
                              .n_vocab = hparams.n_vocab,
                              .top = options.top,
                              .on_logits = progress_of(sequences, terminal)});
  const std::stop_callback fail(stop, [&] { evaluator.fail(cancelled("interrupted")); });
  if (options.workers > 0) {
    return evaluate_on_workers(options, shape, sequences, evaluator, terminal, stop);
  }
  const std::unique_ptr<worker::LocalPipeline> pipeline =
      TRY(worker::LocalPipeline::create(file, pipeline_options, evaluator));
  return evaluator.run(*pipeline, sequences);
}

Json to_json(const serve::SequenceResult& result, const EvalOptions& options) {
  if (options.bits) return result.digest;
  Json json = {{"logits_last", result.logits_last}, {"argmax", result.argmax}};
  if (options.top > 0) json["top"] = result.top;
  return json;
}

std::string json_text(const std::vector<serve::SequenceResult>& results,
                      const EvalOptions& options) {
  Json list = Json::array();
  for (const serve::SequenceResult& result : results) list.push_back(to_json(result, options));
  return list.dump() + "\n";
}

// The text of a token between quotes; empty without a tokenizer.
std::string piece_text(const Tokenizer* tokenizer, int32_t id) {
  if (tokenizer == nullptr) return {};
  return fmt::format("\"{}\"", printable(tokenizer->piece(id, -1, {.special = true}), 40));
}

// One row for each position and each of its most likely ids.
std::string top_table(const std::vector<int32_t>& tokens, const serve::SequenceResult& result,
                      const Tokenizer* tokenizer) {
  std::vector<std::vector<std::string>> rows = {
      {"position", "token", "rank", "id", "probability", "log", "text"}};
  for (size_t position = 0; position < result.top.size(); ++position) {
    size_t rank = 0;
    for (const auto& [id, logprob] : result.top[position]) {
      const bool is_first = rank++ == 0;
      rows.push_back({is_first ? std::to_string(position) : "",
                      is_first ? std::to_string(tokens[position]) : "", std::to_string(rank),
                      std::to_string(id),
                      fmt::format("{:.2f} %", 100 * portable_exp(static_cast<double>(logprob))),
                      fmt::format("{:.4f}", logprob), piece_text(tokenizer, id)});
    }
  }
  return table_text(rows, {0, 1, 2, 3, 4, 5});
}

std::string text_of(const EvalInput& input, const std::vector<serve::SequenceResult>& results,
                    const EvalOptions& options) {
  // A model may be evaluated without a tokenizer that is known.
  const Result<std::unique_ptr<Tokenizer>> made = make_tokenizer(input.file->metadata());
  const Tokenizer* tokenizer = made.ok() ? made.value().get() : nullptr;
  std::string text;
  for (size_t i = 0; i < results.size(); ++i) {
    const serve::SequenceResult& result = results[i];
    if (options.bits) {
      text += result.digest + "\n";
      continue;
    }
    const int32_t next = result.argmax.back();
    text += fmt::format("list {}: {} tokens, most likely next {} {} with logit {:.4f}\n", i,
                        human_count(result.argmax.size()), next, piece_text(tokenizer, next),
                        result.logits_last[static_cast<size_t>(next)]);
    if (options.top > 0) text += top_table(input.sequences[i], result, tokenizer) + "\n";
  }
  return text;
}

Status run_eval(const EvalOptions& options) {
  const Signals signals(options.json);
  Terminal terminal(options.json);
  const EvalInput input = TRY(read_input(options));
  const std::vector<serve::SequenceResult> results =
      TRY(evaluate(options, input, terminal, signals.stop_token()));
  terminal.answer(options.json ? json_text(results, options) : text_of(input, results, options));
  return ok_status();
}

}  // namespace

void add_eval_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("eval", "Show a model's logits for lists of token ids");
  auto options = std::make_shared<EvalOptions>();
  add_model_options(command, options->model, "f32");
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group("Evaluation");
  };
  add("--tokens", options->tokens_path, "FILE", "JSON file: a list of token-id lists")->required();
  add("--workers", options->workers, "N",
      "Run over N worker processes on this machine (default: in this process)")
      ->check(CLI::Range(1, 64));
  add("--chunk", options->chunk, "N", "Tokens of a sequence in one step, at most")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str();
  add("--batch", options->batch, "N", "Lists that run together")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add("--top", options->top, "K",
      "Also the K most likely ids at each position, with their "
      "log-probabilities")
      ->check(CLI::Range(0, 1 << 20))
      ->group("Output");
  command
      .add_flag("--bits", options->bits,
                "Only SHA-256 over the F32 logits of all positions, one for each list: equal on "
                "every path")
      ->group("Output");
  add_json_option(command, context,
                  "Print a list with the last logits and the arg-max of each "
                  "position, for each list");
  add_example(command, "strata eval -m model.gguf --tokens ids.json --split 10,12,8 --bits");
  command.callback([options, &context] {
    context.check = [options] { return serve::check_model_options(options->model); };
    context.run = [options, &context] {
      options->json = context.json;
      return run_eval(*options);
    };
  });
}

}  // namespace strata::cli
