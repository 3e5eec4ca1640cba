#include "runtime/model/hparams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/graph/ops.h"
#include "runtime/model/architecture.h"
#include "runtime/model/model_keys.h"

namespace strata {
namespace {

// The tokenizer's list says how many tokens there are; a header that travelled without it has
// vocab_size, or the embedding's rows. The tensor table compares all others with this.
Result<int32_t> read_vocab_size(const GgufFile& file, const ModelKeys& keys) {
  constexpr int64_t kVocabMax = 1 << 28;
  const std::string_view tokens_key = "tokenizer.ggml.tokens";
  if (file.metadata().contains(tokens_key)) {
    const StringArray tokens = TRY(file.metadata().get_strings(tokens_key));
    if (tokens.size() < 1 || tokens.size() > static_cast<size_t>(kVocabMax)) {
      return file.metadata().error(tokens_key, fmt::format("has {} elements", tokens.size()));
    }
    return static_cast<int32_t>(tokens.size());
  }
  const TensorInfo* embedding = file.find_tensor("token_embd.weight");
  if (embedding != nullptr && embedding->n_dims == 2 && embedding->ne[1] <= kVocabMax) {
    return static_cast<int32_t>(embedding->ne[1]);
  }
  return keys.count("vocab_size", {1, kVocabMax});
}

Status read_sizes(const GgufFile& file, const ModelKeys& keys, Hparams& h) {
  h.n_layer = TRY(keys.count("block_count", {1, kLayersMax}));
  h.n_embd = TRY(keys.count("embedding_length", {1, kWidthMax}));
  h.n_ctx_train = TRY(keys.count("context_length", {1, kContextMax}));
  h.n_vocab = TRY(read_vocab_size(file, keys));
  h.n_expert = TRY(keys.count_or("expert_count", {0, kExpertsMax}, 0));
  if (h.n_expert > 0) {
    h.n_expert_used = TRY(keys.count("expert_used_count", {1, h.n_expert}));
  }
  h.n_ff = TRY(keys.layer_count_or("feed_forward_length", {1, kWidthMax}, h.n_layer, 0));
  if (h.n_ff == 0) return keys.count("feed_forward_length", {1, kWidthMax}).status();
  return ok_status();
}

Status read_heads(const ModelKeys& keys, Hparams& h) {
  constexpr ModelKeys::Range kHeads = {1, kWidthMax};
  h.n_head = TRY(keys.layer_count_or("attention.head_count", kHeads, h.n_layer, 0));
  if (h.n_head == 0) return keys.count("attention.head_count", kHeads).status();
  h.n_head_kv = TRY(keys.layer_count_or("attention.head_count_kv", kHeads, h.n_layer, h.n_head));
  if (h.n_head % h.n_head_kv != 0) {
    return keys.error(
        "attention.head_count_kv",
        fmt::format("is {}, must divide attention.head_count, {}", h.n_head_kv, h.n_head));
  }
  const bool derived = !keys.contains("attention.key_length");
  if (derived && h.n_embd % h.n_head != 0) {
    return keys.error("attention.head_count",
                      fmt::format("is {}, must divide embedding_length, {}, where "
                                  "attention.key_length is not given",
                                  h.n_head, h.n_embd));
  }
  const int32_t width = derived ? h.n_embd / h.n_head : 0;
  h.head_dim_k = TRY(keys.count_or("attention.key_length", {1, kWidthMax}, width));
  h.head_dim_v = TRY(keys.count_or("attention.value_length", {1, kWidthMax}, h.head_dim_k));
  // Products of two of these are at most 2^40: nothing later can overflow in 64 bits.
  const float default_scale = 1.0F / std::sqrt(static_cast<float>(h.head_dim_k));
  h.attention_scale = TRY(keys.positive_or("attention.scale", default_scale));
  h.attention_soft_cap = TRY(keys.non_negative_or("attn_logit_softcapping", 0));
  h.logits_soft_cap = TRY(keys.non_negative_or("final_logit_softcapping", 0));
  if (!TRY(keys.flag_or("attention.causal", true))) {
    return keys.error("attention.causal", "is false: only models that predict the next token run");
  }
  return ok_status();
}

Status read_rope_scaling(const ModelKeys& keys, const Hparams& h, RopeParams& rope) {
  const bool has_factor = keys.contains("rope.scaling.factor");
  const std::string type = TRY(keys.text_or("rope.scaling.type", has_factor ? "linear" : "none"));
  if (type == "none") return ok_status();
  if (type != "linear" && type != "yarn") {
    return unimplemented(
        keys.error("rope.scaling.type", fmt::format("is '{}', which is not supported", type))
            .message(),
        "none, linear and yarn run, and llama 3's by its rope_freqs.weight");
  }
  const float factor = TRY(keys.positive_or("rope.scaling.factor", 1));
  rope.freq_scale = 1.0F / factor;
  rope.attn_factor = TRY(keys.positive_or("rope.scaling.attn_factor", 1));
  if (type == "linear") return ok_status();

  rope.n_ctx_original =
      TRY(keys.count_or("rope.scaling.original_context_length", {1, kContextMax}, h.n_ctx_train));
  rope.ext_factor = TRY(keys.non_negative_or("rope.scaling.yarn_ext_factor", 1));
  rope.beta_fast = TRY(keys.positive_or("rope.scaling.yarn_beta_fast", 32));
  rope.beta_slow = TRY(keys.positive_or("rope.scaling.yarn_beta_slow", 1));
  rope.attn_factor *= TRY(keys.positive_or("rope.scaling.yarn_attn_factor", 1));
  return ok_status();
}

Status read_rope(const ModelKeys& keys, Hparams& h) {
  RopeParams rope;
  rope.freq_base = TRY(keys.positive_or("rope.freq_base", 10000));
  rope.n_rot = TRY(keys.count_or("rope.dimension_count", {2, h.head_dim_k}, h.head_dim_k));
  if (rope.n_rot % 2 != 0) {
    const std::string_view key =
        keys.contains("rope.dimension_count") ? "rope.dimension_count" : "attention.key_length";
    return keys.error(key, fmt::format("gives {} rope dimensions, must be even", rope.n_rot));
  }
  TRY(read_rope_scaling(keys, h, rope));
  h.rope = rope;
  h.rope_local = rope;
  return ok_status();
}

void group_layers(Hparams& h) {
  h.layer_groups.assign(static_cast<size_t>(h.n_layer), 0);
  for (int32_t layer = 0; layer < h.n_layer; ++layer) {
    const int32_t window = h.layer_windows[static_cast<size_t>(layer)];
    auto group = std::find_if(h.kv_groups.begin(), h.kv_groups.end(),
                              [&](const KvGroup& g) { return g.window == window; });
    if (group == h.kv_groups.end()) group = h.kv_groups.insert(group, KvGroup{window, {}});
    group->layers.push_back(layer);
    h.layer_groups[static_cast<size_t>(layer)] = static_cast<int32_t>(group - h.kv_groups.begin());
  }
}

}  // namespace

int64_t Hparams::k_block_elements() const {
  return int64_t{ops::kKvBlockPositions} * head_dim_k * n_head_kv;
}

int64_t Hparams::v_block_elements() const {
  return int64_t{ops::kKvBlockPositions} * head_dim_v * n_head_kv;
}

Result<Hparams> read_hparams(const GgufFile& file) {
  Hparams h;
  h.architecture = TRY(file.architecture());
  const Architecture* architecture =
      TRY(find_architecture(h.architecture).with_context(file.path()));
  const ModelKeys keys(file.metadata(), h.architecture);
  TRY(read_sizes(file, keys, h));
  TRY(read_heads(keys, h));
  h.uses_rope = architecture->uses_rope();
  if (h.uses_rope) TRY(read_rope(keys, h));
  const int32_t window = TRY(keys.count_or("attention.sliding_window", {0, kContextMax}, 0));
  h.layer_windows.assign(static_cast<size_t>(h.n_layer), window);
  TRY(architecture->read_hparams(keys, h));
  group_layers(h);
  return h;
}

}  // namespace strata
