#include "cli/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "backends/cpu/isa.h"
#include "cli/cluster_options.h"
#include "cli/json_line.h"
#include "cli/model_options.h"
#include "cli/signals.h"
#include "cli/tcp_bytes.h"
#include "cli/terminal.h"
#include "runtime/base/base_name.h"
#include "runtime/base/human.h"
#include "runtime/base/text_table.h"
#include "runtime/base/thread_pool.h"
#include "serve/bench_run.h"
#include "serve/local_cluster.h"
#include "serve/local_engine.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kStepTokens = 512;

struct BenchOptions {
  serve::ModelOptions model;
  uint32_t workers = 0;
  uint32_t prompt = 512;
  uint32_t gen = 64;
  uint32_t batch = 1;
  uint32_t depth = 0;
  uint32_t chunk = 0;
  bool json = false;
};

struct BenchResult {
  std::optional<double> prefill_tokens_per_s;
  std::optional<double> decode_tokens_per_s;
  std::optional<double> ttft_ms;
  double hop_us = 0;
  double load_s = 0;
  uint64_t peak_rss_bytes = 0;                        // of the largest process
  std::optional<double> predicted_tokens_per_s;       // of a cluster
  std::optional<double> coordinator_bytes_per_token;  // of a cluster, both ways
  std::vector<int32_t> split;                         // layers of each stage
  std::optional<ThreadPins> pins;                     // of this process's threads, if it computes
};

double seconds_since(TimePoint begin) {
  return std::chrono::duration<double>(SystemClock().now() - begin).count();
}

uint64_t own_peak_rss_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

Status measure(coordinator::EngineLoop& engine, const BenchOptions& options, int32_t vocab_size,
               Terminal& terminal, const std::stop_token& stop, BenchResult& result) {
  const auto say = [&terminal](const std::string& what) {
    if (terminal.shows_progress()) terminal.status(what);
  };
  say("warming up");
  const serve::BenchLoad load{.depth = options.depth,
                              .prompt_tokens = options.prompt,
                              .new_tokens = options.gen,
                              .sequences = options.batch,
                              .vocab_size = vocab_size};
  // Builds the graphs, touches the memory and warms the caches.
  TRY(serve::run_bench(engine,
                       {.prompt_tokens = std::min(options.prompt, kStepTokens),
                        .new_tokens = std::min(options.gen, 4U),
                        .sequences = 1,
                        .vocab_size = vocab_size},
                       stop));
  say(fmt::format("measuring {} x {} prompt tokens and {} new ones", options.batch,
                  human_count(options.prompt), human_count(options.gen)));
  const serve::BenchTimes times = TRY(serve::run_bench(engine, load, stop));
  say("measuring a hop");
  result.prefill_tokens_per_s = times.prefill_tokens_per_s;
  result.decode_tokens_per_s = times.decode_tokens_per_s;
  result.ttft_ms = times.mean_first_ms;
  return ok_status();
}

uint32_t context_of(const BenchOptions& options) {
  return std::max(options.depth + options.prompt + options.gen, serve::kHopContext);
}

serve::LocalEngineOptions engine_options(const BenchOptions& options) {
  return {.model = options.model,
          .context = context_of(options),
          .sequences = options.batch,
          .step_tokens = kStepTokens,
          .prefill_chunk = options.chunk};
}

Result<BenchResult> bench_local(const BenchOptions& options, Terminal& terminal,
                                const std::stop_token& stop) {
  BenchResult result;
  const TimePoint begin = SystemClock().now();
  const std::unique_ptr<serve::LocalEngine> engine =
      TRY(serve::LocalEngine::open(engine_options(options), terminal, stop));
  result.load_s = seconds_since(begin);
  const int32_t vocab_size = static_cast<int32_t>(engine->vocab_size());
  TRY(measure(engine->engine(), options, vocab_size, terminal, stop, result));
  result.hop_us =
      TRY(serve::measure_hop_us(engine->engine(), engine->stage_count(), vocab_size, stop));
  result.peak_rss_bytes = own_peak_rss_bytes();
  result.split = engine->split();
  result.pins = engine->pins();
  return result;
}

// The coordinator's traffic up to a moment.
struct TrafficMark {
  TimePoint time;
  uint64_t bytes = 0;
  uint64_t tokens = 0;
};

TrafficMark mark_traffic(const coordinator::EngineLoop& engine) {
  return {SystemClock().now(), own_tcp_bytes(), engine.counters().tokens_sampled};
}

// Between two marks, less what flows without a token (heartbeats), which takes a second to see.
// None if a connection closed meanwhile, which takes its count along.
Result<std::optional<double>> bytes_per_token(const TrafficMark& begin, const TrafficMark& end,
                                              const std::stop_token& stop) {
  const TimePoint idle_begin = SystemClock().now();
  const uint64_t idle_bytes = own_tcp_bytes();
  if (wait_for_stop(stop, std::chrono::seconds(1))) return cancelled("interrupted");
  const uint64_t idle_end_bytes = own_tcp_bytes();
  if (end.tokens == begin.tokens || end.bytes < begin.bytes || idle_end_bytes < idle_bytes) {
    return std::optional<double>();
  }
  const double idle_bytes_per_s =
      static_cast<double>(idle_end_bytes - idle_bytes) / seconds_since(idle_begin);
  const double seconds = std::chrono::duration<double>(end.time - begin.time).count();
  const double bytes = static_cast<double>(end.bytes - begin.bytes) - idle_bytes_per_s * seconds;
  return std::optional(bytes / static_cast<double>(end.tokens - begin.tokens));
}

// The layers of a cluster's stages, head first.
std::vector<int32_t> split_of(const remote::ClusterStatus& status) {
  std::vector<int32_t> split;
  for (const remote::NodeStatus& node : status.nodes) {
    if (!node.range) continue;
    split.resize(std::max<size_t>(split.size(), node.stage_index + 1));
    split[node.stage_index] = node.range->count();
  }
  return split;
}

Result<BenchResult> bench_cluster(const BenchOptions& options, Terminal& terminal,
                                  const std::stop_token& stop) {
  const std::shared_ptr<GgufFile> file = TRY(GgufFile::open(options.model.path));
  const int32_t vocab_size = TRY(read_hparams(*file)).n_vocab;
  BenchResult result;
  serve::LocalClusterOptions cluster_options;
  serve::ServingOptions& serving = cluster_options.serving;
  serving.model_path = options.model.path;
  serving.context = context_of(options);
  serving.sequences = options.batch;
  serving.slots = std::max(options.batch, 1U);
  serving.prefill_chunk = options.chunk;
  serving.kv_type = options.model.kv_type;
  serving.digest_folder = user_cache_folder() + "/digests";
  serving.is_quiet = options.json;
  serving.split = options.model.split;
  cluster_options.workers = options.workers;
  cluster_options.threads = options.model.threads;
  cluster_options.pin = options.model.pin;
  cluster_options.isa = options.model.isa;
  const TimePoint begin = SystemClock().now();
  const std::unique_ptr<serve::LocalCluster> cluster =
      TRY(serve::LocalCluster::start(cluster_options, terminal, stop));
  TRY(cluster->wait_ready(stop));
  result.load_s = seconds_since(begin);
  coordinator::EngineLoop& engine = cluster->coordinator().engine();
  TRY(measure(engine, options, vocab_size, terminal, stop, result));
  const remote::ClusterStatus status = cluster->coordinator().status();
  if (status.predicted_tokens_per_s > 0) {
    result.predicted_tokens_per_s = status.predicted_tokens_per_s;
  }
  result.split = split_of(status);
  const auto stages = static_cast<uint32_t>(std::max<size_t>(result.split.size(), 1));
  const TrafficMark before = mark_traffic(engine);
  result.hop_us = TRY(serve::measure_hop_us(engine, stages, vocab_size, stop));
  result.coordinator_bytes_per_token = TRY(bytes_per_token(before, mark_traffic(engine), stop));
  result.peak_rss_bytes = own_peak_rss_bytes();
  for (const auto& worker : cluster->workers()) {
    result.peak_rss_bytes = std::max(result.peak_rss_bytes, worker->peak_rss_bytes());
  }
  return result;
}

// What the options leave to the program, as it decided.
struct Settings {
  int threads = 0;  // of each process
  std::string isa;
};

Result<Settings> settings_of(const serve::ModelOptions& options) {
  const cpu::Isa isa = TRY(cpu::choose_isa(options.isa));
  return Settings{.threads = options.threads > 0 ? options.threads : usable_core_count(),
                  .isa = cpu::isa_name(isa)};
}

// The processors of the threads, null where workers decide.
Json pinned_json(const BenchResult& result, const Settings& settings) {
  if (!result.pins) return nullptr;
  const std::vector<int>& cpus = result.pins->cpus;
  const auto used = std::min(cpus.size(), static_cast<size_t>(settings.threads));
  return std::vector<int>(cpus.begin(), cpus.begin() + static_cast<ptrdiff_t>(used));
}

std::string to_json(const BenchResult& result, const BenchOptions& options,
                    const Settings& settings) {
  // What was not measured is null.
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  const Json object = {{"prefill_tokens_per_s", number(result.prefill_tokens_per_s)},
                       {"decode_tokens_per_s", number(result.decode_tokens_per_s)},
                       {"ttft_ms", number(result.ttft_ms)},
                       {"hop_us", result.hop_us},
                       {"load_s", result.load_s},
                       {"peak_rss_bytes", result.peak_rss_bytes},
                       {"predicted_tokens_per_s", number(result.predicted_tokens_per_s)},
                       {"coordinator_bytes_per_token", number(result.coordinator_bytes_per_token)},
                       {"model", base_name(options.model.path)},
                       {"workers", options.workers},
                       {"split", result.split},
                       {"prompt", options.prompt},
                       {"gen", options.gen},
                       {"batch", options.batch},
                       {"depth", options.depth},
                       {"threads", settings.threads},
                       {"pinned", pinned_json(result, settings)},
                       {"pin_reason", result.pins ? Json(result.pins->text) : Json()},
                       {"isa", settings.isa},
                       {"kv_type", options.model.kv_type}};
  return json_line(object);
}

std::string to_text(const BenchResult& result, const BenchOptions& options,
                    const Settings& settings) {
  std::string layers;
  for (const int32_t count : result.split)
    layers += fmt::format("{}{}", layers.empty() ? "" : ",", count);
  const auto row = [](const char* what, const std::string& value, const std::string& unit,
                      const std::string& note) {
    return std::vector<std::string>{what, value, unit, note};
  };
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format("{:.1f}", *value) : "not measured";
  };
  std::vector<std::vector<std::string>> rows = {
      row("prompt", number(result.prefill_tokens_per_s), "tokens/s",
          fmt::format("{} x {} tokens{}", options.batch, human_count(options.prompt),
                      options.depth > 0 ? " after " + human_count(options.depth) : "")),
      row("decode", number(result.decode_tokens_per_s), "tokens/s",
          fmt::format("{} x {} tokens", options.batch, human_count(options.gen))),
      row("first token", number(result.ttft_ms), "ms", "mean over the sequences"),
      row("hop", number(result.hop_us), "µs", "of a token, beside computing"),
      row("load", fmt::format("{:.2f}", result.load_s), "s", ""),
      row("peak memory", number(static_cast<double>(result.peak_rss_bytes) / (1 << 20)), "MiB",
          options.workers > 0 ? "of the largest process" : "")};
  if (result.coordinator_bytes_per_token) {
    rows.push_back(row("coordinator", number(result.coordinator_bytes_per_token), "bytes",
                       "sent and received for a token"));
  }
  if (result.predicted_tokens_per_s) {
    rows.push_back(row("predicted", number(result.predicted_tokens_per_s), "tokens/s",
                       "the planner's, one sequence"));
  }
  return fmt::format(
      "{}, {}, {} thread{}{}{}, layers {}\n\n{}", base_name(options.model.path), settings.isa,
      settings.threads, settings.threads == 1 ? "" : "s",
      result.pins && !result.pins->cpus.empty() ? " (pinned)" : "",
      options.workers > 0 ? fmt::format(" in each of {} workers", options.workers) : "", layers,
      table_text(rows, {1}));
}

Status run_bench_command(const BenchOptions& options) {
  const Signals signals(options.json);
  const std::stop_token stop = signals.stop_token();
  Terminal terminal(options.json);
  const Settings settings = TRY(settings_of(options.model));
  const BenchResult result = TRY(options.workers > 0 ? bench_cluster(options, terminal, stop)
                                                     : bench_local(options, terminal, stop));
  terminal.answer(options.json ? to_json(result, options, settings)
                               : to_text(result, options, settings));
  return ok_status();
}

}  // namespace

void add_bench_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("bench", "Measure prompt and generation speed");
  auto options = std::make_shared<BenchOptions>();
  add_model_options(command, options->model, "f16");
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group("Load");
  };
  add("--prompt", options->prompt, "N", "Prompt tokens of each sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add("--gen", options->gen, "N", "Tokens to generate in each sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add("--batch", options->batch, "N", "Sequences at once")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add("--depth", options->depth, "N",
      "Tokens in the context before the prompt, whose time is not counted")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  add("--chunk", options->chunk, "N",
      "Prompt tokens of one sequence in one step (default: what keeps all stages busy)")
      ->check(CLI::Range(1, 1 << 16));
  add("--workers", options->workers, "N",
      "Over N worker processes on this machine (default: in this process)")
      ->check(CLI::Range(1, 64));
  add_json_option(command, context, "Print one JSON object: the measures and the settings");
  add_example(command, "strata bench -m model.gguf --prompt 512 --gen 128 --json");
  command.callback([options, &context] {
    context.check = [options] { return serve::check_model_options(options->model); };
    context.run = [options, &context] {
      options->json = context.json;
      return run_bench_command(*options);
    };
  });
}

}  // namespace strata::cli
