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
    blocks::declare_ends(table, h);
    for (int32_t layer = 0; layer < h.n_layer; ++layer) declare_layer(h, layer, table);
  }

  Tensor* layer(ModelBuilder& b, int32_t layer, Tensor* x) const override {
    const std::string prefix = layer_prefix(layer);
    blocks::Heads heads = blocks::normed_heads(b, x, layer);
    blocks::norm_heads(b, heads, layer);
    blocks::rotate_heads(b, heads, layer);
    Tensor* y = blocks::attend(b, heads, layer);
    x = ops::add(b.graph, blocks::rms_norm(b, y, prefix + "post_attention_norm"), x);
    y = blocks::gated_feed_forward(b, blocks::rms_norm(b, x, prefix + "ffn_norm"), layer,
                                   Activation::gelu_tanh);
    return ops::add(b.graph, blocks::rms_norm(b, y, prefix + "post_ffw_norm"), x);
  }

 private:
  static void declare_layer(const Hparams& h, int32_t layer, TensorTable& table) {
    const TensorPart part = layer_part(layer);
    const std::string prefix = layer_prefix(layer);
    table.vector(part, prefix + "attn_norm.weight", h.n_embd);
    blocks::declare_attention(table, h, layer);
    blocks::declare_head_norms(table, h, layer);
    table.vector(part, prefix + "post_attention_norm.weight", h.n_embd);
    table.vector(part, prefix + "ffn_norm.weight", h.n_embd);
    blocks::declare_gated_feed_forward(table, h, layer);
    table.vector(part, prefix + "post_ffw_norm.weight", h.n_embd);
  }
};

}  // namespace

const Architecture& gemma3_architecture() {
  static const Gemma3 architecture;
  return architecture;
}

}  // namespace strata
