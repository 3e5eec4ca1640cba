// The blocks that architectures are made of: norms, projections, attention, feed-forward, experts.
//
// Each takes and gives activations in ne order, innermost first, and finds its weights by the GGUF
// names under a prefix ("blk.3."). The ModelBuilder carries what all blocks of one graph share.
// What a block reads is declared by the function beside it, so that no two architectures write the
// same shapes.
//
// Threads: as Graph, externally synchronised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/model/hparams.h"
#include "runtime/model/layer_range.h"
#include "runtime/model/tensor_table.h"
#include "runtime/tensor/tensor.h"

namespace strata {

// Where a builder finds tensors: a stage's weights and cache, or descriptions of them.
class TensorProvider {
 public:
  virtual ~TensorProvider() = default;
  // Null if there is none of that name.
  virtual Tensor* weight(std::string_view name) const = 0;
  virtual Tensor* k_cache(int32_t layer) const = 0;
  virtual Tensor* v_cache(int32_t layer) const = 0;
};

// A graph's inputs. Null where the range has no use for one.
struct GraphInputs {
  Tensor* tokens = nullptr;           // I32 {n_tokens}
  Tensor* activations = nullptr;      // F32 {n_embd, n_tokens}
  Tensor* positions = nullptr;        // I32 {n_tokens}
  Tensor* sequence = nullptr;         // I32 {n_tokens}: row of the block tables
  Tensor* outputs = nullptr;          // I32 {n_outputs}: tokens whose logits are wanted
  std::vector<Tensor*> block_tables;  // per KV group: I32 {max_blocks, n_seqs}
  std::vector<Tensor*> cells;         // per KV group: I32 {n_tokens}
};

struct ModelBuilder {
  Graph& graph;
  const Hparams& hparams;
  const TensorProvider& tensors;
  GraphInputs inputs;

  // Requires: the tensor is there; the tensor table made sure of it.
  Tensor* weight(const std::string& name) const;
};

// "blk.3."
std::string layer_prefix(int32_t layer);

namespace blocks {

// x {n, ...} by the norm `name`.weight (RMS), or with `name`.bias as well (layer norm).
Tensor* rms_norm(ModelBuilder& b, Tensor* x, const std::string& name);
Tensor* layer_norm(ModelBuilder& b, Tensor* x, const std::string& name);

// x {n_in, n_tokens} -> {n_out, n_tokens}: `name`.weight, plus `name`.bias if there is one.
Tensor* linear(ModelBuilder& b, Tensor* x, const std::string& name);

// token_embd.weight, output_norm.weight and the head, which may be tied.
void declare_ends(TensorTable& table, const Hparams& hparams);
// Rows of token_embd.weight, times hparams.embedding_scale.
Tensor* token_embedding(ModelBuilder& b, Tensor* tokens);

struct Heads {
  Tensor* q;  // {head_dim_k, n_head, n_tokens}
  Tensor* k;  // {head_dim_k, n_head_kv, n_tokens}
  Tensor* v;  // {head_dim_v, n_head_kv, n_tokens}
};
// Projections attn_q, attn_k, attn_v of x {n_embd, n_tokens}.
Heads project_heads(ModelBuilder& b, Tensor* x, int32_t layer);
// The same of the RMS norm attn_norm of x.
Heads normed_heads(ModelBuilder& b, Tensor* x, int32_t layer);
// attn_q, attn_k, attn_v and attn_output, each with a bias if the file has one.
void declare_attention(TensorTable& table, const Hparams& hparams, int32_t layer);
// The same from one matrix attn_qkv, whose rows are those of q, k and v in turn.
Heads project_fused_heads(ModelBuilder& b, Tensor* x, int32_t layer);
// RMS norm of each head of q and k by attn_q_norm and attn_k_norm.
void norm_heads(ModelBuilder& b, Heads& heads, int32_t layer);
void declare_head_norms(TensorTable& table, const Hparams& hparams, int32_t layer);
// Turns q and k by the layer's rope; rope_freqs.weight divides the frequencies if it is there.
void rotate_heads(ModelBuilder& b, Heads& heads, int32_t layer);
// Writes k and v to the cache, attends, projects by attn_output: -> {n_embd, n_tokens}.
Tensor* attend(ModelBuilder& b, const Heads& heads, int32_t layer);

// down(activation(gate(x)) * up(x)): ffn_gate, ffn_up, ffn_down.
Tensor* gated_feed_forward(ModelBuilder& b, Tensor* x, int32_t layer, Activation activation);
void declare_gated_feed_forward(TensorTable& table, const Hparams& hparams, int32_t layer);
// down(activation(up(x))): ffn_up, ffn_down.
Tensor* plain_feed_forward(ModelBuilder& b, Tensor* x, int32_t layer, Activation activation);
// ffn_gate_inp chooses hparams.n_expert_used experts for each token; their gated feed-forwards
// (ffn_gate_exps, ffn_up_exps, ffn_down_exps) are added with soft-max weights.
Tensor* expert_feed_forward(ModelBuilder& b, Tensor* x, int32_t layer, Activation activation);
void declare_expert_feed_forward(TensorTable& table, const Hparams& hparams, int32_t layer);

// x {n_embd, n_outputs} -> logits by output.weight, or by token_embd.weight where the head is tied;
// soft-capped if the model says so.
Tensor* logits(ModelBuilder& b, Tensor* x);

}  // namespace blocks

// Builds the graph of a layer range over the inputs that `builder` has: the result is the residual
// stream {n_embd, n_tokens}, or logits {n_vocab, n_outputs} with a head and an `outputs` input. It
// is marked as the graph's output.
Tensor* build_stage(ModelBuilder& builder, const LayerRange& range);

}  // namespace strata
