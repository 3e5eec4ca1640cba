#include "cli/serving.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/cluster_options.h"
#include "cli/command.h"
#include "cli/local_engine.h"
#include "runtime/base/human.h"
#include "runtime/base/thread_pool.h"
#include "runtime/gguf/digest.h"
#include "runtime/gguf/digest_file_cache.h"

namespace strata::cli {
namespace {

Result<ModelDigest> digest_of(const GgufFile& file, bool is_quiet, Terminal& terminal,
                              std::stop_token stop) {
  DigestOptions options;
  options.threads = usable_core_count();
  options.stop = std::move(stop);
  options.progress = [&terminal, is_quiet](uint64_t done, uint64_t total) {
    if (is_quiet) return;
    terminal.progress("checking the model",
                      static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(total, 1)),
                      human_bytes(total));
  };
  DigestFileCache cache(user_cache_folder() + "/digests");
  options.cache = &cache;
  return compute_digest(file, options);
}

// The engine's limit is the longer one: a stage that hangs is then found by name first.
void set_timeouts(const ServingOptions& options, coordinator::CoordinatorOptions& result) {
  constexpr auto kNamedFirst = std::chrono::seconds(3);
  if (options.step_timeout_s > 0) {
    result.cluster.membership.stall_timeout = std::chrono::seconds(options.step_timeout_s);
    result.cluster.plan.step_time_by_plan = false;
  }
  result.engine.step_timeout = result.cluster.membership.stall_timeout + kNamedFirst;
  result.request_timeout = std::chrono::seconds(options.request_timeout_s);
}

}  // namespace

void add_serving_options(CLI::App& command, ServingOptions& options) {
  add_model_path_option(command, options.model_path)->required();
  add_context_option(command, options.context);
  add_kv_type_option(command, options.kv_type);
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group("Placement and load");
  };
  add("--workers", options.workers, "N",
      "Wait for N workers and use them all; 0: begin once those that have joined suffice (default "
      "0)")
      ->check(CLI::Range(0, 256));
  add("--split", options.split, "LAYERS",
      "Layers per stage, head first, obeyed to the letter: 10,12,8 or lab-2:10,lab-1:20; a last 0 "
      "is the output head alone (default: as balances the stages)");
  add("--sequences", options.sequences, "N",
      "Whole contexts that the KV cache should hold, if memory allows; one is always required")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add("--slots", options.slots, "N",
      "Sequences that are live at once, at most; more than the cache holds in full take turns")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  add("--queue", options.queue, "N", "Requests that may wait for a slot; one more is refused")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  add("--step-tokens", options.step_tokens, "N",
      "Tokens of one step, at most: more use memory and delay the tokens of others")
      ->check(CLI::Range(2, 1 << 16))
      ->capture_default_str();
  add("--chunk", options.prefill_chunk, "N",
      "Prompt tokens of one sequence in one step (default: what keeps all stages busy)")
      ->check(CLI::Range(1, 1 << 16));
  add("--step-timeout", options.step_timeout_s, "SECONDS",
      "Time after which a stage that computes on one step counts as hung (default: 30, and what "
      "the step's tokens need by the plan)")
      ->check(CLI::Range(1, 86'400));
  add("--request-timeout", options.request_timeout_s, "SECONDS",
      "Time that a request may take, waiting included; 0: no limit")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
}

Status check_serving_options(const ServingOptions& options) {
  TRY(parse_kv_type(options.kv_type));
  if (options.split) TRY(coordinator::parse_split(*options.split));
  return ok_status();
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
                                                               .max_outputs = options.max_outputs,
                                                               .devices = devices->devices()}));
  input.plan.context = context;
  input.plan.sequences_wanted = options.sequences;
  input.plan.step_tokens = options.step_tokens;
  input.plan.ignore_windows = options.ignore_windows;
  input.plan.use_all_nodes = options.workers > 0;
  if (options.split) {
    input.plan.split = TRY(coordinator::parse_split(*options.split, input.profile.layer_count()));
    if (options.workers > 0 && options.workers != input.plan.split.size()) {
      return invalid_argument(fmt::format("--split {} has {} stages and --workers is {}",
                                          *options.split, input.plan.split.size(),
                                          options.workers));
    }
  }
  return input;
}

Result<std::unique_ptr<coordinator::Coordinator>> start_coordinator(const ServingOptions& options,
                                                                    const ListenOptions& listen,
                                                                    Terminal& terminal,
                                                                    std::stop_token stop) {
  PlanInput input = TRY(plan_input(options));
  coordinator::CoordinatorOptions result;
  ModelDigest digest = TRY(digest_of(*input.file, options.is_quiet, terminal, stop));
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
  result.state_folder = listen.state_folder;
  result.pipeline_user = listen.pipeline_user;
  result.cluster.max_outputs = options.max_outputs;
  result.engine.queue_max = options.queue;
  set_timeouts(options, result);
  result.prefill_chunk = options.prefill_chunk;
  result.on_note = options.on_note;
  if (!result.on_note) {
    result.on_note = [&terminal, is_quiet = options.is_quiet](const coordinator::Note& note) {
      if (note.is_warning || !is_quiet) terminal.line(note.text, note.is_warning);
    };
  }
  return coordinator::Coordinator::start(std::move(result));
}

}  // namespace strata::cli
