// gpt2: learned positions, layer norms with biases, one fused projection of query, key and value,
// a plain GELU feed-forward. Source: Radford et al., "Language Models are Unsupervised Multitask
// Learners" (2019).
#include "runtime/graph/ops.h"
#include "runtime/model/arch/architectures.h"

namespace strata {
namespace {

class Gpt2 final : public Architecture {
 public:
  std::string_view name() const override { return "gpt2"; }
  bool uses_rope() const override { return false; }

  Status read_hparams(const ModelKeys& keys, Hparams& h) const override {
    h.norm_eps = TRY(keys.positive("attention.layer_norm_epsilon"));
    return ok_status();
  }

  void declare_tensors(const Hparams& h, TensorTable& table) const override {
    blocks::declare_ends(table, h);
    table.table(kInputPart, "position_embd.weight", h.n_embd, h.n_ctx_train);
    for (int32_t layer = 0; layer < h.n_layer; ++layer) declare_layer(h, layer, table);
    table.vector(kOutputPart, "output_norm.bias", h.n_embd);
  }

  Tensor* embed(ModelBuilder& b, Tensor* tokens) const override {
    Tensor* places = ops::get_rows(b.graph, b.weight("position_embd.weight"), b.inputs.positions);
    return ops::add(b.graph, blocks::token_embedding(b, tokens), places);
  }

  Tensor* layer(ModelBuilder& b, int32_t layer, Tensor* x) const override {
    const std::string prefix = layer_prefix(layer);
    const blocks::Heads heads =
        blocks::project_fused_heads(b, blocks::layer_norm(b, x, prefix + "attn_norm"), layer);
    x = ops::add(b.graph, blocks::attend(b, heads, layer), x);
    Tensor* normed = blocks::layer_norm(b, x, prefix + "ffn_norm");
    return ops::add(b.graph, blocks::plain_feed_forward(b, normed, layer, Activation::gelu_tanh),
                    x);
  }

  Tensor* head(ModelBuilder& b, Tensor* x) const override {
    return blocks::logits(b, blocks::layer_norm(b, x, "output_norm"));
  }

 private:
  static void declare_layer(const Hparams& h, int32_t layer, TensorTable& table) {
    const TensorPart part = layer_part(layer);
    const std::string prefix = layer_prefix(layer);
    const int64_t n_q = int64_t{h.head_dim_k} * h.n_head;
    const int64_t n_kv = (int64_t{h.head_dim_k} + h.head_dim_v) * h.n_head_kv;
    for (const char* norm : {"attn_norm", "ffn_norm"}) {
      table.vector(part, prefix + norm + ".weight", h.n_embd);
      table.vector(part, prefix + norm + ".bias", h.n_embd);
    }
    table.linear(part, prefix + "attn_qkv", h.n_embd, n_q + n_kv, true);
    table.linear(part, prefix + "attn_output", int64_t{h.head_dim_v} * h.n_head, h.n_embd, true);
    table.linear(part, prefix + "ffn_up", h.n_embd, h.n_ff, true);
    table.linear(part, prefix + "ffn_down", h.n_ff, h.n_embd, true);
  }
};

}  // namespace

const Architecture& gpt2_architecture() {
  static const Gpt2 architecture;
  return architecture;
}

}  // namespace strata
