// qwen3: Qwen 3's dense models. As llama, with an RMS norm of each query and key head before they
// turn, and rotary pairs half a head apart. Source: arXiv 2505.09388.
#include "runtime/graph/ops.h"
#include "runtime/model/arch/architectures.h"

namespace strata {
namespace {

class Qwen3 final : public Architecture {
 public:
  std::string_view name() const override { return "qwen3"; }

  Status read_hparams(const ModelKeys& keys, Hparams& h) const override {
    h.norm_eps = TRY(keys.positive("attention.layer_norm_rms_epsilon"));
    if (h.n_expert > 0) return keys.error("expert_count", "must be 0 for qwen3");
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
    x = ops::add(b.graph, blocks::attend(b, heads, layer), x);
    Tensor* normed = blocks::rms_norm(b, x, prefix + "ffn_norm");
    return ops::add(b.graph, blocks::gated_feed_forward(b, normed, layer, Activation::silu), x);
  }

 private:
  static void declare_layer(const Hparams& h, int32_t layer, TensorTable& table) {
    const TensorPart part = layer_part(layer);
    const std::string prefix = layer_prefix(layer);
    table.vector(part, prefix + "attn_norm.weight", h.n_embd);
    blocks::declare_attention(table, h, layer);
    blocks::declare_head_norms(table, h, layer);
    table.vector(part, prefix + "ffn_norm.weight", h.n_embd);
    blocks::declare_gated_feed_forward(table, h, layer);
  }
};

}  // namespace

const Architecture& qwen3_architecture() {
  static const Qwen3 architecture;
  return architecture;
}

}  // namespace strata
