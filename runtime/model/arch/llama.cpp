// llama: Llama 1 to 3, Mistral, SmolLM2 and others of that shape; with experts it is Mixtral.
//
// RMS norm before attention and before the feed-forward, rotary positions, SiLU gate. The GGUF
// converter permutes the rows of attn_q and attn_k, so that the pairs which turn are neighbours.
// Source: arXiv 2302.13971 (Llama), arXiv 2401.04088 (Mixtral).
#include "runtime/graph/ops.h"
#include "runtime/model/arch/architectures.h"

namespace strata {
namespace {

class Llama final : public Architecture {
 public:
  std::string_view name() const override { return "llama"; }

  Status read_hparams(const ModelKeys& keys, Hparams& h) const override {
    h.norm_eps = TRY(keys.positive("attention.layer_norm_rms_epsilon"));
    h.rope.style = RopeStyle::interleaved;
    h.rope_local = h.rope;
    return ok_status();
  }

  void declare_tensors(const Hparams& h, TensorTable& table) const override {
    blocks::declare_ends(table, h);
    table.optional_vector(kAllLayers, "rope_freqs.weight", h.rope.n_rot / 2);
    for (int32_t layer = 0; layer < h.n_layer; ++layer) declare_layer(h, layer, table);
  }

  Tensor* layer(ModelBuilder& b, int32_t layer, Tensor* x) const override {
    const std::string prefix = layer_prefix(layer);
    blocks::Heads heads = blocks::normed_heads(b, x, layer);
    blocks::rotate_heads(b, heads, layer);
    x = ops::add(b.graph, blocks::attend(b, heads, layer), x);
    Tensor* normed = blocks::rms_norm(b, x, prefix + "ffn_norm");
    Tensor* y = b.hparams.n_expert > 0
                    ? blocks::expert_feed_forward(b, normed, layer, Activation::silu)
                    : blocks::gated_feed_forward(b, normed, layer, Activation::silu);
    return ops::add(b.graph, y, x);
  }

 private:
  static void declare_layer(const Hparams& h, int32_t layer, TensorTable& table) {
    const TensorPart part = layer_part(layer);
    const std::string prefix = layer_prefix(layer);
    table.vector(part, prefix + "attn_norm.weight", h.n_embd);
    blocks::declare_attention(table, h, layer);
    table.vector(part, prefix + "ffn_norm.weight", h.n_embd);
    if (h.n_expert > 0) {
      blocks::declare_expert_feed_forward(table, h, layer);
    } else {
      blocks::declare_gated_feed_forward(table, h, layer);
    }
  }
};

}  // namespace

const Architecture& llama_architecture() {
  static const Llama architecture;
  return architecture;
}

}  // namespace strata
