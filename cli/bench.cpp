#include "cli/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_run.h"
#include "cli/local_cluster.h"
#include "cli/local_engine.h"
#include "runtime/base/human.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;

struct BenchOptions {
  ModelOptions model;
  uint32_t workers = 0;
  uint32_t prompt = 512;
  uint32_t gen = 64;
  uint32_t batch = 1;
  uint32_t depth = 0;
  uint32_t chunk = 0;
  bool json = false;
};

struct BenchResult {
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;
  double ttft_ms = 0;
  double hop_us = 0;
  double load_s = 0;
  uint64_t peak_rss_bytes = 0;  // of the largest process
  double predicted_tokens_per_s = 0;
  std::string split;
};

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(SystemClock().now() - begin).count();
}

uint64_t own_peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

// Whole prompts of depth + prompt tokens; what the first `depth` of them cost is measured apart.
Status measure(coordinator::EngineLoop& engine, const BenchOptions& options, int32_t vocab_size,
               Signals& signals, BenchResult& result, double& ms_per_token) {
  const auto interrupted = [&signals] { return signals.count() > 0; };
  BenchLoad load{.prompt_tokens = options.depth + options.prompt,
                 .new_tokens = options.gen,
                 .sequences = options.batch,
                 .vocab_size = vocab_size};
  // Builds the graphs and warms the caches.
  TRY(run_bench(engine,
                {.prompt_tokens = std::min(options.prompt, 64U),
                 .new_tokens = 4,
                 .sequences = 1,
                 .vocab_size = vocab_size},
                interrupted));
  double depth_ms = 0;
  if (options.depth > 0) {
    BenchLoad depth_only = load;
    depth_only.prompt_tokens = options.depth;
    depth_only.new_tokens = 1;
    depth_ms = TRY(run_bench(engine, depth_only, interrupted)).first_token_ms;
  }
  const BenchTimes times = TRY(run_bench(engine, load, interrupted));
  const double prefill_ms = std::max(times.first_token_ms - depth_ms, 1e-3);
  result.prefill_tokens_per_s = options.prompt * options.batch / prefill_ms * 1e3;
  result.decode_tokens_per_s = times.decode_tokens_per_s;
  result.ttft_ms = times.mean_first_ms;
  ms_per_token = times.ms_per_token;
  return ok_status();
}

LocalEngineOptions engine_options(const BenchOptions& options) {
  return {.model = options.model,
          .context = options.depth + options.prompt + options.gen,
          .sequences = options.batch,
          .step_tokens = 512,
          .prefill_chunk = options.chunk};
}

// In one process: a hop is what a token takes beside the stages' own computing.
Result<BenchResult> bench_local(const BenchOptions& options, Terminal& terminal, Signals& signals) {
  BenchResult result;
  const TimePoint begin = SystemClock().now();
  const std::unique_ptr<LocalEngine> engine =
      TRY(LocalEngine::open(engine_options(options), terminal, signals));
  result.load_s = seconds_since(begin);
  double ms_per_token = 0;
  const int32_t vocab_size = static_cast<int32_t>(engine->vocab_size());
  TRY(measure(engine->engine(), options, vocab_size, signals, result, ms_per_token));
  // A decode of one sequence, with the stages' counters around it.
  const StageBusy before = engine->busy();
  const BenchTimes alone = TRY(
      run_bench(engine->engine(),
                {.prompt_tokens = 1, .new_tokens = 33, .sequences = 1, .vocab_size = vocab_size},
                [&signals] { return signals.count() > 0; }));
  const StageBusy after = engine->busy();
  const double steps =
      static_cast<double>(after.steps - before.steps) / static_cast<double>(after.stages);
  if (steps > 0 && alone.ms_per_token > 0) {
    const double busy_ms = static_cast<double>(after.busy_ns - before.busy_ns) / 1e6 / steps;
    result.hop_us =
        std::max(0.0, (alone.ms_per_token - busy_ms) * 1e3 / static_cast<double>(after.stages));
  }
  result.peak_rss_bytes = own_peak_rss_bytes();
  return result;
}

// Over worker processes: a hop is what a token takes longer than in one process with equal threads.
Result<BenchResult> bench_cluster(const BenchOptions& options, Terminal& terminal,
                                  Signals& signals) {
  double local_ms = 0;
  int32_t vocab_size = 0;
  const auto interrupted = [&signals] { return signals.count() > 0; };
  const BenchLoad one{.prompt_tokens = 1, .new_tokens = 33, .sequences = 1, .vocab_size = 0};
  {
    BenchOptions whole = options;
    whole.model.split.clear();
    const std::unique_ptr<LocalEngine> engine =
        TRY(LocalEngine::open(engine_options(whole), terminal, signals));
    vocab_size = static_cast<int32_t>(engine->vocab_size());
    BenchLoad load = one;
    load.vocab_size = vocab_size;
    TRY(run_bench(engine->engine(), load, interrupted));
    local_ms = TRY(run_bench(engine->engine(), load, interrupted)).ms_per_token;
  }
  BenchResult result;
  LocalClusterOptions cluster_options;
  ServingOptions& serving = cluster_options.serving;
  serving.model_path = options.model.path;
  serving.context = options.depth + options.prompt + options.gen;
  serving.sequences = options.batch;
  serving.slots = std::max(options.batch, 1U);
  serving.prefill_chunk = options.chunk;
  serving.kv_type = options.model.kv_type;
  serving.is_quiet = options.json;
  for (const int layers : options.model.split) {
    serving.split += fmt::format("{}{}", serving.split.empty() ? "" : ",", layers);
  }
  cluster_options.workers = options.workers;
  cluster_options.threads = options.model.threads;
  cluster_options.isa = options.model.isa;
  const TimePoint begin = SystemClock().now();
  const std::unique_ptr<LocalCluster> cluster =
      TRY(LocalCluster::start(cluster_options, terminal, signals));
  TRY(cluster->wait_ready(signals));
  result.load_s = seconds_since(begin);
  double ms_per_token = 0;
  coordinator::EngineLoop& engine = cluster->coordinator().engine();
  TRY(measure(engine, options, vocab_size, signals, result, ms_per_token));
  BenchLoad load = one;
  load.vocab_size = vocab_size;
  const double cluster_ms = TRY(run_bench(engine, load, interrupted)).ms_per_token;
  result.hop_us = (cluster_ms - local_ms) * 1e3 / options.workers;
  result.predicted_tokens_per_s = cluster->coordinator().status().predicted_tokens_per_s;
  result.peak_rss_bytes = own_peak_rss_bytes();
  for (const auto& worker : cluster->workers()) {
    result.peak_rss_bytes = std::max(result.peak_rss_bytes, worker->peak_rss_bytes());
  }
  return result;
}

std::string to_json(const BenchResult& result, const BenchOptions& options) {
  const Json object = {{"prefill_tokens_per_s", result.prefill_tokens_per_s},
                       {"decode_tokens_per_s", result.decode_tokens_per_s},
                       {"ttft_ms", result.ttft_ms},
                       {"hop_us", result.hop_us},
                       {"load_s", result.load_s},
                       {"peak_rss_bytes", result.peak_rss_bytes},
                       {"predicted_tokens_per_s", result.predicted_tokens_per_s},
                       {"model", options.model.path.substr(options.model.path.rfind('/') + 1)},
                       {"workers", options.workers},
                       {"split", options.model.split},
                       {"prompt", options.prompt},
                       {"gen", options.gen},
                       {"batch", options.batch},
                       {"depth", options.depth},
                       {"threads", options.model.threads},
                       {"isa", options.model.isa},
                       {"kv_type", options.model.kv_type}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string to_text(const BenchResult& result, const BenchOptions& options) {
  std::string text = fmt::format(
      "prompt    {:8.1f} tokens/s  ({} x {} tokens{})\n"
      "decode    {:8.1f} tokens/s  ({} x {} tokens)\n"
      "first     {:8.1f} ms\n"
      "hop       {:8.1f} us\n"
      "load      {:8.2f} s\n"
      "peak      {:>8}\n",
      result.prefill_tokens_per_s, options.batch, options.prompt,
      options.depth > 0 ? fmt::format(" after {}", options.depth) : "", result.decode_tokens_per_s,
      options.batch, options.gen, result.ttft_ms, result.hop_us, result.load_s,
      human_bytes(result.peak_rss_bytes));
  if (result.predicted_tokens_per_s > 0) {
    text +=
        fmt::format("predicted {:8.1f} tokens/s for one sequence\n", result.predicted_tokens_per_s);
  }
  return text;
}

Status run_bench_command(const BenchOptions& options) {
  Signals signals;
  Terminal terminal;
  const BenchResult result = TRY(options.workers > 0 ? bench_cluster(options, terminal, signals)
                                                     : bench_local(options, terminal, signals));
  terminal.answer(options.json ? to_json(result, options) : to_text(result, options));
  return ok_status();
}

}  // namespace

void add_bench_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("bench", "Measure prompt and generation speed");
  auto options = std::make_shared<BenchOptions>();
  add_model_options(command, options->model, "f16");
  command.add_option("--workers", options->workers, "Over N worker processes on this machine")
      ->check(CLI::Range(1, 64));
  command.add_option("--prompt", options->prompt, "Prompt tokens of each sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--gen", options->gen, "Tokens to generate in each sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--batch", options->batch, "Sequences at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--depth", options->depth, "Tokens in the context before the prompt")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  command.add_option("--chunk", options->chunk, "Prompt tokens of one sequence in one step")
      ->check(CLI::Range(1, 1 << 16));
  add_json_option(command, context);
  add_example(command, "strata bench -m model.gguf --prompt 512 --gen 128 --json");
  command.callback([options, &context] {
    context.run = [options, &context] {
      options->json = context.json;
      return run_bench_command(*options);
    };
  });
}

}  // namespace strata::cli
