#include "serve/serving.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/human.h"
#include "runtime/base/thread_pool.h"
#include "runtime/gguf/digest.h"
#include "runtime/gguf/digest_file_cache.h"
#include "serve/local_engine.h"

namespace strata::serve {
namespace {

Result<ModelDigest> digest_of(const GgufFile& file, const ServingOptions& serving,
                              ProgressDisplay& display, std::stop_token stop) {
  DigestOptions options;
  options.threads = usable_core_count();
  options.stop = std::move(stop);
  options.progress = [&display, is_quiet = serving.is_quiet](uint64_t done, uint64_t total) {
    if (is_quiet) return;
    display.progress("checking the model",
                     static_cast<double>(done) / static_cast<double>(std::max<uint64_t>(total, 1)),
                     human_bytes(total));
  };
  DigestFileCache cache(serving.digest_folder);
  if (!serving.digest_folder.empty()) options.cache = &cache;
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

Status check_serving_options(const ServingOptions& options) {
  TRY(parse_kv_type(options.kv_type));
  if (options.split) TRY(coordinator::parse_split(*options.split));
  for (const std::string& name : options.exclude) {
    TRY(remote::check_node_name(name).with_context("--exclude"));
  }
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
  input.plan.goal =
      options.plan_for == "many" ? coordinator::PlanGoal::many : coordinator::PlanGoal::one;
  input.plan.exclude = options.exclude;
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
                                                                    ProgressDisplay& display,
                                                                    std::stop_token stop) {
  PlanInput input = TRY(plan_input(options));
  coordinator::CoordinatorOptions result;
  ModelDigest digest = TRY(digest_of(*input.file, options, display, stop));
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
    result.on_note = [&display, is_quiet = options.is_quiet](const coordinator::Note& note) {
      if (note.is_warning || !is_quiet) display.line(note.text, note.is_warning);
    };
  }
  return coordinator::Coordinator::start(std::move(result));
}

}  // namespace strata::serve
