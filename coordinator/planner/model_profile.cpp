#include "coordinator/planner/model_profile.h"

#include <algorithm>

#include "runtime/base/base_name.h"

namespace strata::coordinator {
namespace {

// Each thread of a worker has some workspace; counted as for a large one, since the plan must not
// promise what the worker then refuses.
constexpr int kThreadsCounted = 64;

StageOptions options_for(const Hparams& hparams, const ProfileOptions& options,
                         const LayerRange& range) {
  StageOptions stage;
  stage.range = range;
  stage.kv.type = options.kv_type;
  // One block of each group: what layer_kv then says is the price of a block.
  stage.kv.group_blocks.assign(hparams.kv_groups.size(), 1);
  stage.max_batch_tokens = static_cast<int32_t>(options.step_tokens);
  stage.max_sequences = static_cast<int32_t>(options.slots);
  stage.max_outputs = static_cast<int32_t>(options.max_outputs);
  stage.max_context = static_cast<int32_t>(options.context);
  stage.devices = options.devices;
  stage.backend.threads = kThreadsCounted;
  return stage;
}

}  // namespace

Result<ModelProfile> profile_model(const GgufFile& file, const ProfileOptions& options) {
  const Hparams hparams = TRY(read_hparams(file));
  const int32_t layers = hparams.n_layer;
  const auto estimate = [&](const LayerRange& range) {
    return StageModel::estimate(file, options_for(hparams, options, range));
  };
  ModelProfile profile;
  profile.name = base_name(file.path());
  profile.n_embd = static_cast<uint32_t>(hparams.n_embd);
  profile.n_vocab = static_cast<uint32_t>(hparams.n_vocab);
  profile.context_trained = static_cast<uint32_t>(std::max(hparams.n_ctx_train, 1));
  for (const KvGroup& group : hparams.kv_groups) {
    profile.group_windows.push_back(static_cast<uint32_t>(group.window));
  }

  const StageEstimate whole =
      TRY(estimate({.begin = 0, .end = layers, .has_embedding = true, .has_head = true}));
  const StageEstimate head =
      TRY(estimate({.begin = layers, .end = layers, .has_embedding = false, .has_head = true}));
  for (int32_t i = 0; i < layers; ++i) {
    const size_t at = static_cast<size_t>(i);
    profile.layers.push_back({.weights_bytes = whole.layer_weights[at],
                              .kv_block_bytes = whole.layer_kv[at],
                              .group = static_cast<uint32_t>(hparams.layer_groups[at])});
  }
  profile.input_bytes = whole.input_weights;
  profile.output_bytes = head.output_weights;
  profile.output_shared_bytes =
      head.output_weights - std::min(head.output_weights, whole.output_weights);
  // Activations do not depend on how many layers a stage has, only on its ends and on their kinds:
  // the dearest layer counts.
  const auto activations = [](const StageEstimate& of) { return of.compute - of.kept_graphs; };
  profile.compute_bytes[1][1] = activations(whole);
  profile.compute_bytes[0][1] = activations(head);
  profile.end_graph_bytes = head.kept_graphs;
  for (int32_t i = 0; i < layers; ++i) {
    const size_t at = static_cast<size_t>(i);
    const bool is_end = i == 0 || i == layers - 1;
    if (!is_end && i > 1 && hparams.layer_groups[at] == hparams.layer_groups[at - 1]) continue;
    const LayerRange range{
        .begin = i, .end = i + 1, .has_embedding = i == 0, .has_head = i == layers - 1};
    const StageEstimate part = TRY(estimate(range));
    uint64_t& most = profile.compute_bytes[range.has_embedding ? 1 : 0][range.has_head ? 1 : 0];
    most = std::max(most, activations(part));
    // An end's nodes are no layer's, unless there is none without.
    if (is_end && layers > 2) continue;
    profile.layer_graph_bytes = std::max(profile.layer_graph_bytes, part.kept_graphs);
  }
  // A layer in the middle takes no more with an end beside it.
  uint64_t& middle = profile.compute_bytes[0][0];
  if (middle == 0) middle = std::max(profile.compute_bytes[1][0], profile.compute_bytes[0][1]);
  if (profile.compute_bytes[1][0] == 0) profile.compute_bytes[1][0] = activations(whole);
  return profile;
}

}  // namespace strata::coordinator
