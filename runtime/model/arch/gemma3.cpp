// gemma3: Gemma 3's text models. Embeddings scaled by sqrt(n_embd), norms before and after
// attention and feed-forward, norms of query and key heads, a GELU gate, and five layers with a
// window for each one that sees everything. The norms' "+ 1" is in the file's weights.
// Source: arXiv 2503.19786.
#include <cmath>

#include "runtime/graph/ops.h"
#include "runtime/model/arch/architectures.h"

namespace strata {
namespace {

constexpr int32_t kPatternDefault = 6;  // every 6th layer sees everything
// Only the 27B model scales queries by its width per head and not by the head's size.
constexpr int32_t kLayersOf27B = 62;

class Gemma3 final : public Architecture {
 public:
  std::string_view name() const override { return "gemma3"; }

  Status read_hparams(const ModelKeys& keys, Hparams& h) const override {
    h.norm_eps = TRY(keys.positive("attention.layer_norm_rms_epsilon"));
    h.embedding_scale = std::sqrt(static_cast<float>(h.n_embd));
    if (h.n_layer == kLayersOf27B && !keys.contains("attention.scale")) {
      h.attention_scale =
          1.0F / std::sqrt(static_cast<float>(h.n_embd) / static_cast<float>(h.n_head));
    }
    if (!keys.contains("rope.freq_base")) h.rope.freq_base = 1000000;
    // Scaling stretches the global layers only.
    h.rope_local = RopeParams{.n_rot = h.rope.n_rot, .style = h.rope.style};
    h.rope_local.freq_base = TRY(keys.positive_or("rope.freq_base_swa", 10000));
    const int32_t window = h.layer_windows[0];
    const int32_t pattern =
        TRY(keys.count_or("attention.sliding_window_pattern", {1, kLayersMax}, kPatternDefault));
    for (int32_t layer = 0; layer < h.n_layer; ++layer) {
      const bool global = layer % pattern == pattern - 1;
      h.layer_windows[static_cast<size_t>(layer)] = global ? 0 : window;
    }
    return ok_status();
  }

  void declare_tensors(const Hparams& h, TensorTable& table) const override {
    table.table(kInputPart, "token_embd.weight", h.n_embd, h.n_vocab);
    for (int32_t layer = 0; layer < h.n_layer; ++layer) declare_layer(h, layer, table);
    table.vector(kOutputPart, "output_norm.weight", h.n_embd);
    table.tied_head(h.n_embd, h.n_vocab);
  }

  Tensor* embed(ModelBuilder& b, Tensor* tokens) const override {
    return blocks::token_embedding(b, tokens);
  }

  Tensor* layer(ModelBuilder& b, int32_t layer, Tensor* x) const override {
    const std::string prefix = layer_prefix(layer);
    blocks::Heads heads =
        blocks::project_heads(b, blocks::rms_norm(b, x, prefix + "attn_norm"), layer);
    blocks::norm_heads(b, heads, layer);
    blocks::rotate_heads(b, heads, layer);
    Tensor* y = blocks::attend(b, heads, layer);
    x = ops::add(b.graph, blocks::rms_norm(b, y, prefix + "post_attention_norm"), x);
    y = blocks::gated_feed_forward(b, blocks::rms_norm(b, x, prefix + "ffn_norm"), layer,
                                   Activation::gelu_tanh);
    return ops::add(b.graph, blocks::rms_norm(b, y, prefix + "post_ffw_norm"), x);
  }

  Tensor* head(ModelBuilder& b, Tensor* x) const override {
    return blocks::logits(b, blocks::rms_norm(b, x, "output_norm"));
  }

 private:
  static void declare_layer(const Hparams& h, int32_t layer, TensorTable& table) {
    const TensorPart part = layer_part(layer);
    const std::string prefix = layer_prefix(layer);
    table.vector(part, prefix + "attn_norm.weight", h.n_embd);
    table.linear(part, prefix + "attn_q", h.n_embd, int64_t{h.head_dim_k} * h.n_head);
    table.linear(part, prefix + "attn_k", h.n_embd, int64_t{h.head_dim_k} * h.n_head_kv);
    table.linear(part, prefix + "attn_v", h.n_embd, int64_t{h.head_dim_v} * h.n_head_kv);
    table.linear(part, prefix + "attn_output", int64_t{h.head_dim_v} * h.n_head, h.n_embd);
    table.vector(part, prefix + "attn_q_norm.weight", h.head_dim_k);
    table.vector(part, prefix + "attn_k_norm.weight", h.head_dim_k);
    table.vector(part, prefix + "post_attention_norm.weight", h.n_embd);
    table.vector(part, prefix + "ffn_norm.weight", h.n_embd);
    table.linear(part, prefix + "ffn_gate", h.n_embd, h.n_ff);
    table.linear(part, prefix + "ffn_up", h.n_embd, h.n_ff);
    table.linear(part, prefix + "ffn_down", h.n_ff, h.n_embd);
    table.vector(part, prefix + "post_ffw_norm.weight", h.n_embd);
  }
};

}  // namespace

const Architecture& gemma3_architecture() {
  static const Gemma3 architecture;
  return architecture;
}

}  // namespace strata
