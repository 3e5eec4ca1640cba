#include "runtime/model/blocks.h"

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/graph/ops.h"
#include "runtime/model/architecture.h"

namespace strata {

Tensor* ModelBuilder::weight(const std::string& name) const {
  Tensor* tensor = tensors.weight(name);
  STRATA_CHECK(tensor != nullptr, "the stage does not hold " + name);
  return tensor;
}

std::string layer_prefix(int32_t layer) { return fmt::format("blk.{}.", layer); }

namespace blocks {

Tensor* rms_norm(ModelBuilder& b, Tensor* x, const std::string& name) {
  return ops::rms_norm(b.graph, x, b.weight(name + ".weight"), b.hparams.norm_eps);
}

Tensor* layer_norm(ModelBuilder& b, Tensor* x, const std::string& name) {
  return ops::layer_norm(b.graph, x, b.weight(name + ".weight"), b.weight(name + ".bias"),
                         b.hparams.norm_eps);
}

Tensor* linear(ModelBuilder& b, Tensor* x, const std::string& name) {
  Tensor* y = ops::mul_mat(b.graph, b.weight(name + ".weight"), x);
  Tensor* bias = b.tensors.weight(name + ".bias");
  return bias == nullptr ? y : ops::add(b.graph, y, bias);
}

void declare_ends(TensorTable& table, const Hparams& h) {
  table.table(kInputPart, "token_embd.weight", h.n_embd, h.n_vocab);
  table.vector(kOutputPart, "output_norm.weight", h.n_embd);
  table.tied_head(h.n_embd, h.n_vocab);
}

Tensor* token_embedding(ModelBuilder& b, Tensor* tokens) {
  Tensor* x = ops::get_rows(b.graph, b.weight("token_embd.weight"), tokens);
  return b.hparams.embedding_scale == 1 ? x : ops::scale(b.graph, x, b.hparams.embedding_scale);
}

Heads project_heads(ModelBuilder& b, Tensor* x, int32_t layer) {
  const Hparams& h = b.hparams;
  const std::string prefix = layer_prefix(layer);
  const int64_t n_tokens = x->ne[1];
  Tensor* q = linear(b, x, prefix + "attn_q");
  Tensor* k = linear(b, x, prefix + "attn_k");
  Tensor* v = linear(b, x, prefix + "attn_v");
  return {ops::reshape(b.graph, q, {h.head_dim_k, h.n_head, n_tokens, 1}),
          ops::reshape(b.graph, k, {h.head_dim_k, h.n_head_kv, n_tokens, 1}),
          ops::reshape(b.graph, v, {h.head_dim_v, h.n_head_kv, n_tokens, 1})};
}

Heads normed_heads(ModelBuilder& b, Tensor* x, int32_t layer) {
  return project_heads(b, rms_norm(b, x, layer_prefix(layer) + "attn_norm"), layer);
}

void declare_attention(TensorTable& table, const Hparams& h, int32_t layer) {
  const TensorPart part = layer_part(layer);
  const std::string prefix = layer_prefix(layer);
  table.linear(part, prefix + "attn_q", h.n_embd, int64_t{h.head_dim_k} * h.n_head);
  table.linear(part, prefix + "attn_k", h.n_embd, int64_t{h.head_dim_k} * h.n_head_kv);
  table.linear(part, prefix + "attn_v", h.n_embd, int64_t{h.head_dim_v} * h.n_head_kv);
  table.linear(part, prefix + "attn_output", int64_t{h.head_dim_v} * h.n_head, h.n_embd);
}

Heads project_fused_heads(ModelBuilder& b, Tensor* x, int32_t layer) {
  const Hparams& h = b.hparams;
  Tensor* qkv = linear(b, x, layer_prefix(layer) + "attn_qkv");
  int64_t row = 0;
  // A cut of whole rows is not dense, so it is copied before it becomes heads.
  const auto take = [&](int64_t head_dim, int64_t n_head) {
    Tensor* part = ops::slice(b.graph, qkv, 0, row, head_dim * n_head);
    row += head_dim * n_head;
    return ops::reshape(b.graph, ops::contiguous(b.graph, part), {head_dim, n_head, x->ne[1], 1});
  };
  Heads heads{};
  heads.q = take(h.head_dim_k, h.n_head);
  heads.k = take(h.head_dim_k, h.n_head_kv);
  heads.v = take(h.head_dim_v, h.n_head_kv);
  return heads;
}

void norm_heads(ModelBuilder& b, Heads& heads, int32_t layer) {
  heads.q = rms_norm(b, heads.q, layer_prefix(layer) + "attn_q_norm");
  heads.k = rms_norm(b, heads.k, layer_prefix(layer) + "attn_k_norm");
}

void declare_head_norms(TensorTable& table, const Hparams& h, int32_t layer) {
  table.vector(layer_part(layer), layer_prefix(layer) + "attn_q_norm.weight", h.head_dim_k);
  table.vector(layer_part(layer), layer_prefix(layer) + "attn_k_norm.weight", h.head_dim_k);
}

void rotate_heads(ModelBuilder& b, Heads& heads, int32_t layer) {
  const RopeParams& rope = b.hparams.rope_of(layer);
  Tensor* factors = b.tensors.weight("rope_freqs.weight");
  heads.q = ops::rope(b.graph, heads.q, b.inputs.positions, factors, rope);
  heads.k = ops::rope(b.graph, heads.k, b.inputs.positions, factors, rope);
}

Tensor* attend(ModelBuilder& b, const Heads& heads, int32_t layer) {
  const Hparams& h = b.hparams;
  const auto group = static_cast<size_t>(h.layer_groups[static_cast<size_t>(layer)]);
  Tensor* v_cache = b.tensors.v_cache(layer);
  Tensor* k_cache = ops::kv_write(b.graph, heads.k, heads.v, b.tensors.k_cache(layer), v_cache,
                                  b.inputs.cells[group]);
  const ops::AttentionSources sources = {.q = heads.q,
                                         .k_cache = k_cache,
                                         .v_cache = v_cache,
                                         .block_table = b.inputs.block_tables[group],
                                         .seq = b.inputs.sequence,
                                         .positions = b.inputs.positions,
                                         .sinks = nullptr};
  const AttentionParams params = {.scale = h.attention_scale,
                                  .soft_cap = h.attention_soft_cap,
                                  .window = h.layer_windows[static_cast<size_t>(layer)],
                                  .n_head_kv = h.n_head_kv,
                                  .head_dim_v = h.head_dim_v,
                                  .causal = true};
  Tensor* mixed = ops::attention(b.graph, sources, params);
  Tensor* flat =
      ops::reshape(b.graph, mixed, {int64_t{h.head_dim_v} * h.n_head, heads.q->ne[2], 1, 1});
  return linear(b, flat, layer_prefix(layer) + "attn_output");
}

Tensor* gated_feed_forward(ModelBuilder& b, Tensor* x, int32_t layer, Activation activation) {
  const std::string prefix = layer_prefix(layer);
  Tensor* gate = linear(b, x, prefix + "ffn_gate");
  Tensor* up = linear(b, x, prefix + "ffn_up");
  return linear(b, ops::gated(b.graph, gate, up, activation), prefix + "ffn_down");
}

void declare_gated_feed_forward(TensorTable& table, const Hparams& h, int32_t layer) {
  const TensorPart part = layer_part(layer);
  const std::string prefix = layer_prefix(layer);
  table.linear(part, prefix + "ffn_gate", h.n_embd, h.n_ff);
  table.linear(part, prefix + "ffn_up", h.n_embd, h.n_ff);
  table.linear(part, prefix + "ffn_down", h.n_ff, h.n_embd);
}

Tensor* plain_feed_forward(ModelBuilder& b, Tensor* x, int32_t layer, Activation activation) {
  const std::string prefix = layer_prefix(layer);
  Tensor* up = linear(b, x, prefix + "ffn_up");
  return linear(b, ops::activate(b.graph, up, activation), prefix + "ffn_down");
}

Tensor* expert_feed_forward(ModelBuilder& b, Tensor* x, int32_t layer, Activation activation) {
  const std::string prefix = layer_prefix(layer);
  const int64_t n_tokens = x->ne[1];
  Tensor* scores = ops::mul_mat(b.graph, b.weight(prefix + "ffn_gate_inp.weight"), x);
  Tensor* chosen = ops::top_k(b.graph, scores, b.hparams.n_expert_used);
  Tensor* weights = ops::route_weights(b.graph, scores, chosen, RouteParams{});
  // One slot, which every chosen expert reads.
  Tensor* column = ops::reshape(b.graph, x, {x->ne[0], 1, n_tokens, 1});
  Tensor* gate =
      ops::mul_mat_id(b.graph, b.weight(prefix + "ffn_gate_exps.weight"), column, chosen);
  Tensor* up = ops::mul_mat_id(b.graph, b.weight(prefix + "ffn_up_exps.weight"), column, chosen);
  Tensor* inner = ops::gated(b.graph, gate, up, activation);
  Tensor* down = ops::mul_mat_id(b.graph, b.weight(prefix + "ffn_down_exps.weight"), inner, chosen);
  return ops::combine(b.graph, down, weights);
}

void declare_expert_feed_forward(TensorTable& table, const Hparams& h, int32_t layer) {
  const TensorPart part = layer_part(layer);
  const std::string prefix = layer_prefix(layer);
  table.matrix(part, prefix + "ffn_gate_inp.weight", h.n_embd, h.n_expert);
  table.experts(part, prefix + "ffn_gate_exps.weight", h.n_embd, h.n_ff, h.n_expert);
  table.experts(part, prefix + "ffn_up_exps.weight", h.n_embd, h.n_ff, h.n_expert);
  table.experts(part, prefix + "ffn_down_exps.weight", h.n_ff, h.n_embd, h.n_expert);
}

Tensor* logits(ModelBuilder& b, Tensor* x) {
  Tensor* head = b.tensors.weight("output.weight");
  if (head == nullptr) head = b.weight("token_embd.weight");
  Tensor* y = ops::mul_mat(b.graph, head, x);
  return b.hparams.logits_soft_cap > 0 ? ops::soft_cap(b.graph, y, b.hparams.logits_soft_cap) : y;
}

}  // namespace blocks

Tensor* build_stage(ModelBuilder& builder, const LayerRange& range) {
  const Architecture& architecture = *find_architecture(builder.hparams.architecture).value();
  Tensor* x = builder.inputs.activations;
  if (range.has_embedding) x = architecture.embed(builder, builder.inputs.tokens);
  for (int32_t layer = range.begin; layer < range.end; ++layer) {
    x = architecture.layer(builder, layer, x);
  }
  if (range.has_head && builder.inputs.outputs != nullptr) {
    x = ops::get_rows(builder.graph, x, builder.inputs.outputs);
    x = architecture.head(builder, x);
  }
  builder.graph.mark_output(x);
  return x;
}

}  // namespace strata
