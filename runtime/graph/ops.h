// Builders of graph nodes: each infers the shape of its result, and checks its sources' shapes.
//
// Shapes are in ne order, innermost first. A wrong shape here is a bug of the caller (weights are
// checked against the model's parameters before a graph is built), so it aborts with both shapes.
// Every result is F32 and dense unless the line says otherwise. Threads: as Graph.
#pragma once

#include "runtime/graph/graph.h"

namespace strata::ops {

// The same elements, dense, in another shape of the same count. Requires: x is contiguous.
Tensor* reshape(Graph& graph, Tensor* x, const Dims& ne);
// `count` entries along dimension `dim` from `begin` on. No data moves.
Tensor* slice(Graph& graph, Tensor* x, int dim, int64_t begin, int64_t count);
// Dimension i of the result is dimension axes[i] of x. No data moves.
Tensor* permute(Graph& graph, Tensor* x, const std::array<int, kMaxDims>& axes);
// Exchanges the two innermost dimensions. No data moves.
Tensor* transpose(Graph& graph, Tensor* x);
// Dense copy of x, of any strides.
Tensor* contiguous(Graph& graph, Tensor* x);

// table {n, n_rows} of any weight type, ids I32 {count} -> {n, count}. Ids lie in [0, n_rows).
Tensor* get_rows(Graph& graph, Tensor* table, Tensor* ids);

// a of any shape, b of the same shape, or one whose trailing dimensions are 1: repeated over a.
Tensor* add(Graph& graph, Tensor* a, Tensor* b);
Tensor* multiply(Graph& graph, Tensor* a, Tensor* b);
Tensor* scale(Graph& graph, Tensor* a, float factor);
// Elementwise sum of one or more tensors of equal shape, added from left to right.
Tensor* sum(Graph& graph, std::vector<Tensor*> terms);

// x {n, ...}, weight {n}: y = x / sqrt(mean(x^2) + eps) * weight over each row of n.
Tensor* rms_norm(Graph& graph, Tensor* x, Tensor* weight, float eps);
// x {n, ...}, weight {n}, bias {n}: y = (x - mean) / sqrt(variance + eps) * weight + bias.
Tensor* layer_norm(Graph& graph, Tensor* x, Tensor* weight, Tensor* bias, float eps);

// weight {n_in, n_out} of any weight type, x {n_in, n_tokens} -> {n_out, n_tokens}.
Tensor* mul_mat(Graph& graph, Tensor* weight, Tensor* x);
// weight {n_in, n_out, n_expert}, x {n_in, n_slots or 1, n_tokens}, ids I32 {n_slots, n_tokens}
// -> {n_out, n_slots, n_tokens}: column (s, t) is weight[ids(s, t)] times x(s or 0, t).
Tensor* mul_mat_id(Graph& graph, Tensor* weight, Tensor* x, Tensor* ids);

// x {head_dim, n_head, n_tokens}, positions I32 {n_tokens}; freq_factors F32 {n_rot / 2} divides
// each pair's frequency, or is null.
Tensor* rope(Graph& graph, Tensor* x, Tensor* positions, Tensor* freq_factors,
             const RopeParams& params);

Tensor* activate(Graph& graph, Tensor* x, Activation activation);
// gate, up {n, n_tokens}: activation(gate) * up.
Tensor* gated(Graph& graph, Tensor* gate, Tensor* up, Activation activation);
Tensor* soft_cap(Graph& graph, Tensor* x, float cap);

// Positions per KV block: fixed by the wire, the kernels and the block manager alike.
inline constexpr int32_t kKvBlockPositions = 16;

// k {head_dim, n_head_kv, n_tokens}, v {head_dim_v, n_head_kv, n_tokens},
// k_cache {16 * head_dim * n_head_kv, n_blocks}, v_cache {16 * head_dim_v * n_head_kv, n_blocks} of
// the KV type, cells I32 {n_tokens}: block * 16 + position % 16, or -1 for a token to be skipped;
// no other cell twice: tokens are written in any order, several at once.
// The layout inside a block is the backend's. Sources in order: k_cache, k, v, v_cache, cells.
// The result is a view of k_cache, which attention takes in its place, so that it runs after the
// write.
Tensor* kv_write(Graph& graph, Tensor* k, Tensor* v, Tensor* k_cache, Tensor* v_cache,
                 Tensor* cells);

struct AttentionSources {
  Tensor* q = nullptr;        // {head_dim, n_head, n_tokens}
  Tensor* k_cache = nullptr;  // as kv_write returned it
  Tensor* v_cache = nullptr;
  Tensor* block_table = nullptr;  // I32 {max_blocks, n_seqs}: block id of each 16 positions
  Tensor* seq = nullptr;          // I32 {n_tokens}: the token's row of the block table
  Tensor* positions = nullptr;    // I32 {n_tokens}: a token sees [0, position], less the window
  Tensor* sinks = nullptr;        // F32 {n_head}, or null
};
// -> {head_dim_v, n_head, n_tokens}. A token with seq -1 gives zeros. Table entries wholly before
// the window may be -1 and are not read.
// Source: FlashAttention-2 (arXiv 2307.08691), PagedAttention (arXiv 2309.06180).
Tensor* attention(Graph& graph, const AttentionSources& sources, const AttentionParams& params);

// x {n, n_tokens} -> I32 {k, n_tokens}: ids of the k largest, largest first, ties by lower id.
Tensor* top_k(Graph& graph, Tensor* x, int32_t k);
// logits {n_expert, n_tokens}, ids I32 {k, n_tokens} -> {k, n_tokens}: gate weights of the chosen.
Tensor* route_weights(Graph& graph, Tensor* logits, Tensor* ids, const RouteParams& params);
// x {n, n_slots, n_tokens}, weights {n_slots, n_tokens} -> {n, n_tokens}, slots added in order.
Tensor* combine(Graph& graph, Tensor* x, Tensor* weights);

}  // namespace strata::ops
