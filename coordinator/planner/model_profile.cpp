#include "coordinator/planner/model_profile.h"

#include <algorithm>

namespace strata::coordinator {
namespace {

StageOptions options_for(const Hparams& hparams, const ProfileOptions& options,
                         const LayerRange& range) {
  StageOptions stage;
  stage.range = range;
  stage.kv.type = options.kv_type;
  // One block of each group: what layer_kv then says is the price of a block.
  stage.kv.group_blocks.assign(hparams.kv_groups.size(), 1);
  stage.max_batch_tokens = static_cast<int32_t>(options.step_tokens);
  stage.max_sequences = static_cast<int32_t>(options.slots);
  stage.max_context = static_cast<int32_t>(options.context);
  stage.devices = options.devices;
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
  profile.name = file.path().substr(file.path().rfind('/') + 1);
  profile.n_embd = static_cast<uint32_t>(hparams.n_embd);
  profile.n_vocab = static_cast<uint32_t>(hparams.n_vocab);
  profile.context_trained = static_cast<uint32_t>(std::max(hparams.n_ctx_train, 1));
  for (const KvGroup& group : hparams.kv_groups) {
    profile.group_windows.push_back(static_cast<uint32_t>(group.window));
  }

  const StageEstimate whole =
      TRY(estimate({.begin = 0, .end = layers, .has_embedding = true, .has_head = true}));
  const StageEstimate tail =
      TRY(estimate({.begin = layers - 1, .end = layers, .has_embedding = false, .has_head = true}));
  for (int32_t i = 0; i < layers; ++i) {
    const size_t at = static_cast<size_t>(i);
    profile.layers.push_back({.weights_bytes = whole.layer_weights[at],
                              .kv_block_bytes = whole.layer_kv[at],
                              .group = static_cast<uint32_t>(hparams.layer_groups[at])});
  }
  profile.input_bytes = whole.input_weights;
  profile.output_bytes = tail.output_weights;
  profile.output_shared_bytes =
      tail.output_weights - std::min(tail.output_weights, whole.output_weights);
  // Activations do not depend on how many layers a stage has, only on its ends; windows may differ
  // between layers, so the dearest counts. The embedding goes with the first layer, the head with
  // the last.
  for (int32_t i = 0; i < layers; ++i) {
    const bool first_of_kind = i == 0 || hparams.layer_groups[static_cast<size_t>(i)] !=
                                             hparams.layer_groups[static_cast<size_t>(i - 1)];
    if (!first_of_kind) continue;
    for (const LayerRange& range :
         {LayerRange{i, i + 1, false, false}, LayerRange{0, i + 1, true, false},
          LayerRange{i, layers, false, true}}) {
      const StageEstimate part = TRY(estimate(range));
      uint64_t& most = profile.compute_bytes[range.has_embedding ? 1 : 0][range.has_head ? 1 : 0];
      most = std::max(most, part.compute);
    }
  }
  profile.compute_bytes[1][1] = whole.compute;
  return profile;
}

}  // namespace strata::coordinator
