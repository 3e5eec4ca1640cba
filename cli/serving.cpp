#include "cli/serving.h"

#include <fmt/format.h>

#include <algorithm>
#include <stop_token>
#include <thread>

#include "cli/cluster_options.h"
#include "cli/local_engine.h"
#include "runtime/base/human.h"
#include "runtime/gguf/digest.h"
#include "runtime/gguf/digest_file_cache.h"

namespace strata::cli {
namespace {

Result<ModelDigest> digest_of(const GgufFile& file, bool is_quiet, Terminal& terminal,
                              Signals& signals) {
  std::stop_source stop;
  signals.on_signal([stop](int) mutable { stop.request_stop(); });
  DigestOptions options;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.stop = stop.get_token();
  options.progress = [&terminal, is_quiet](uint64_t done, uint64_t total) {
    if (is_quiet) return;
    terminal.progress("checking the model",
                      static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(total, 1)),
                      human_bytes(total));
  };
  DigestFileCache cache(user_cache_folder() + "/digests");
  options.cache = &cache;
  Result<ModelDigest> digest = compute_digest(file, options);
  signals.on_signal({});
  return digest;
}

}  // namespace

void add_serving_options(CLI::App& command, ServingOptions& options) {
  command
      .add_option("-m,--model", options.model_path, "GGUF file, or the first file of a split model")
      ->required();
  command
      .add_option("--workers", options.workers,
                  "Wait for N workers and use them all (default: begin once those that have "
                  "joined suffice)")
      ->check(CLI::Range(0, 256));
  command.add_option(
      "--ctx", options.context,
      "Most tokens of prompt and answer together (default: the model's, up to 4096)");
  command
      .add_option("--sequences", options.sequences,
                  "Whole contexts that the KV cache should hold, if memory allows")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--slots", options.slots, "Sequences that are live at once, at most")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command.add_option("--queue", options.queue, "Requests that may wait for a slot")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--step-tokens", options.step_tokens, "Tokens of one step, at most")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  command
      .add_option("--chunk", options.prefill_chunk,
                  "Prompt tokens of one sequence in one step (default: by the stages)")
      ->check(CLI::Range(1, 1 << 16));
  command.add_option("--kv-type", options.kv_type, "Type of the KV cache: f32, f16, q8_0 or q4_0")
      ->capture_default_str();
  command.add_option("--split", options.split,
                     "Layers per stage, head first: 10,12,8 or worker-2:10,worker-1:20");
}

Result<PlanInput> plan_input(const ServingOptions& options) {
  PlanInput input;
  input.file = TRY(GgufFile::open(options.model_path));
  const Hparams hparams = TRY(read_hparams(*input.file));
  const uint32_t context = TRY(choose_context(hparams, options.context));
  // Weights lie in workers' memory as they would in this machine's.
  const std::unique_ptr<DeviceRegistry> devices = TRY(open_devices({}));
  const DType kv_type = TRY(parse_kv_type(options.kv_type));
  input.profile = TRY(coordinator::profile_model(*input.file, {.kv_type = kv_type,
                                                               .step_tokens = options.step_tokens,
                                                               .slots = options.slots,
                                                               .context = context,
                                                               .devices = devices->devices()}));
  input.plan.context = context;
  input.plan.sequences_wanted = options.sequences;
  input.plan.step_tokens = options.step_tokens;
  input.plan.ignore_windows = options.ignore_windows;
  input.plan.use_all_nodes = options.workers > 0;
  if (!options.split.empty()) {
    input.plan.split = TRY(coordinator::parse_split(options.split, input.profile.layer_count()));
    if (options.workers > 0 && options.workers != input.plan.split.size()) {
      return invalid_argument(fmt::format("--split {} has {} stages and --workers is {}",
                                          options.split, input.plan.split.size(), options.workers));
    }
  }
  return input;
}

Result<std::unique_ptr<coordinator::Coordinator>> start_coordinator(const ServingOptions& options,
                                                                    const ListenOptions& listen,
                                                                    Terminal& terminal,
                                                                    Signals& signals) {
  PlanInput input = TRY(plan_input(options));
  coordinator::CoordinatorOptions result;
  ModelDigest digest = TRY(digest_of(*input.file, options.is_quiet, terminal, signals));
  result.model_digest = "sha256:" + digest.model;
  result.tensor_digests = std::move(digest.tensors);
  result.file = std::move(input.file);
  result.token = listen.token;
  result.listen = listen.listen;
  result.insecure_network = listen.insecure_network;
  result.cluster.profile = std::move(input.profile);
  result.cluster.plan = std::move(input.plan);
  result.cluster.kv_type = options.kv_type;
  result.cluster.slots = options.slots;
  result.cluster.workers = options.workers;
  result.engine.queue_max = options.queue;
  // A long prompt's step takes minutes on a slow machine with a large model.
  result.engine.step_timeout = std::chrono::minutes(5);
  result.cluster.membership.stall_timeout = std::chrono::minutes(5);
  result.prefill_chunk = options.prefill_chunk;
  result.on_note = [&terminal, is_quiet = options.is_quiet](const coordinator::Note& note) {
    if (note.is_warning || !is_quiet) terminal.line(note.text, note.is_warning);
  };
  return coordinator::Coordinator::start(std::move(result));
}

}  // namespace strata::cli
