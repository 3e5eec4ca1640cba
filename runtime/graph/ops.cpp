#include "runtime/graph/ops.h"

#include <fmt/format.h>

#include "runtime/base/check.h"

namespace strata::ops {
namespace {

void require(bool condition, std::string_view op, std::initializer_list<const Tensor*> tensors) {
  if (condition) return;
  std::string shapes;
  for (const Tensor* tensor : tensors) shapes += " " + (tensor ? describe(*tensor) : "(none)");
  check_failed("shapes fit", fmt::format("{} of{}", op, shapes), __FILE__, __LINE__);
}

bool is_vector(const Tensor* t, DType dtype, int64_t n) {
  return t->dtype == dtype && t->ne == Dims{n, 1, 1, 1};
}

// b equals a, or its trailing dimensions are 1 and the leading ones equal.
bool repeats_over(const Tensor* b, const Tensor* a) {
  int i = 0;
  while (i < kMaxDims && b->ne[i] == a->ne[i]) ++i;
  for (; i < kMaxDims; ++i) {
    if (b->ne[i] != 1) return false;
  }
  return true;
}

Tensor* elementwise(Graph& graph, Op op, Tensor* a, Tensor* b) {
  require(a->dtype == DType::f32 && b->dtype == DType::f32 && repeats_over(b, a), op_name(op),
          {a, b});
  return graph.new_node(op, DType::f32, a->ne, {a, b});
}

}  // namespace

Tensor* reshape(Graph& graph, Tensor* x, const Dims& ne) {
  Tensor shape;
  shape.ne = ne;
  require(x->is_contiguous() && shape.element_count() == x->element_count(), "reshape",
          {x, &shape});
  return graph.new_view(x, ne, dense_strides(x->dtype, ne).value(), 0);
}

Tensor* slice(Graph& graph, Tensor* x, int dim, int64_t begin, int64_t count) {
  require(begin >= 0 && count >= 0 && begin + count <= x->ne[dim], "slice", {x});
  const int64_t block = dim == 0 ? dtype_traits(x->dtype).block_elements : 1;
  require(begin % block == 0 && count % block == 0, "slice", {x});
  Dims ne = x->ne;
  ne[dim] = count;
  return graph.new_view(x, ne, x->nb, static_cast<uint64_t>(begin / block) * x->nb[dim]);
}

Tensor* permute(Graph& graph, Tensor* x, const std::array<int, kMaxDims>& axes) {
  Dims ne;
  Strides nb;
  unsigned seen = 0;
  for (int i = 0; i < kMaxDims; ++i) {
    ne[i] = x->ne[axes[i]];
    nb[i] = x->nb[axes[i]];
    seen |= 1u << axes[i];
  }
  require(seen == 15u && dtype_traits(x->dtype).block_elements == 1, "permute", {x});
  return graph.new_view(x, ne, nb, 0);
}

Tensor* transpose(Graph& graph, Tensor* x) { return permute(graph, x, {1, 0, 2, 3}); }

Tensor* contiguous(Graph& graph, Tensor* x) {
  return graph.new_node(Op::contiguous, x->dtype, x->ne, {x});
}

Tensor* get_rows(Graph& graph, Tensor* table, Tensor* ids) {
  require(is_vector(ids, DType::i32, ids->ne[0]) && table->ne[2] == 1 && table->ne[3] == 1,
          "get_rows", {table, ids});
  return graph.new_node(Op::get_rows, DType::f32, {table->ne[0], ids->ne[0], 1, 1}, {table, ids});
}

Tensor* add(Graph& graph, Tensor* a, Tensor* b) { return elementwise(graph, Op::add, a, b); }

Tensor* multiply(Graph& graph, Tensor* a, Tensor* b) {
  return elementwise(graph, Op::multiply, a, b);
}

Tensor* scale(Graph& graph, Tensor* a, float factor) {
  return graph.new_node(Op::scale, DType::f32, a->ne, {a}, ScaleParams{factor});
}

Tensor* sum(Graph& graph, std::vector<Tensor*> terms) {
  STRATA_CHECK(!terms.empty(), "a sum of nothing");
  for (const Tensor* term : terms) {
    require(term->same_shape(*terms[0]) && term->dtype == DType::f32, "sum", {terms[0], term});
  }
  const Dims ne = terms[0]->ne;
  return graph.new_node(Op::sum, DType::f32, ne, std::move(terms));
}

Tensor* rms_norm(Graph& graph, Tensor* x, Tensor* weight, float eps) {
  require(x->dtype == DType::f32 && is_vector(weight, DType::f32, x->ne[0]), "rms_norm",
          {x, weight});
  return graph.new_node(Op::rms_norm, DType::f32, x->ne, {x, weight}, NormParams{eps});
}

Tensor* layer_norm(Graph& graph, Tensor* x, Tensor* weight, Tensor* bias, float eps) {
  require(x->dtype == DType::f32 && is_vector(weight, DType::f32, x->ne[0]) &&
              is_vector(bias, DType::f32, x->ne[0]),
          "layer_norm", {x, weight, bias});
  return graph.new_node(Op::layer_norm, DType::f32, x->ne, {x, weight, bias}, NormParams{eps});
}

Tensor* mul_mat(Graph& graph, Tensor* weight, Tensor* x) {
  require(weight->ne[0] == x->ne[0] && weight->ne[2] == 1 && weight->ne[3] == 1 && x->ne[2] == 1 &&
              x->ne[3] == 1 && x->dtype == DType::f32,
          "mul_mat", {weight, x});
  return graph.new_node(Op::mul_mat, DType::f32, {weight->ne[1], x->ne[1], 1, 1}, {weight, x});
}

Tensor* mul_mat_id(Graph& graph, Tensor* weight, Tensor* x, Tensor* ids) {
  require(weight->ne[0] == x->ne[0] && weight->ne[3] == 1 && x->ne[3] == 1 &&
              x->dtype == DType::f32 && ids->dtype == DType::i32 && ids->ne[1] == x->ne[2] &&
              (x->ne[1] == 1 || x->ne[1] == ids->ne[0]),
          "mul_mat_id", {weight, x, ids});
  return graph.new_node(Op::mul_mat_id, DType::f32, {weight->ne[1], ids->ne[0], x->ne[2], 1},
                        {weight, x, ids});
}

Tensor* rope(Graph& graph, Tensor* x, Tensor* positions, Tensor* freq_factors,
             const RopeParams& params) {
  require(x->dtype == DType::f32 && is_vector(positions, DType::i32, x->ne[2]) &&
              params.n_rot > 0 && params.n_rot % 2 == 0 && params.n_rot <= x->ne[0],
          "rope", {x, positions});
  std::vector<Tensor*> sources = {x, positions};
  if (freq_factors != nullptr) {
    require(is_vector(freq_factors, DType::f32, params.n_rot / 2), "rope", {x, freq_factors});
    sources.push_back(freq_factors);
  }
  return graph.new_node(Op::rope, DType::f32, x->ne, std::move(sources), params);
}

Tensor* activate(Graph& graph, Tensor* x, Activation activation) {
  return graph.new_node(Op::activate, DType::f32, x->ne, {x}, ActivationParams{activation});
}

Tensor* gated(Graph& graph, Tensor* gate, Tensor* up, Activation activation) {
  require(gate->same_shape(*up), "gated", {gate, up});
  return graph.new_node(Op::gated, DType::f32, gate->ne, {gate, up}, ActivationParams{activation});
}

Tensor* soft_cap(Graph& graph, Tensor* x, float cap) {
  return graph.new_node(Op::soft_cap, DType::f32, x->ne, {x}, ScaleParams{cap});
}

Tensor* kv_write(Graph& graph, Tensor* k, Tensor* v, Tensor* k_cache, Tensor* v_cache,
                 Tensor* cells) {
  require(k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] &&
              k_cache->ne[0] == kKvBlockPositions * k->ne[0] * k->ne[1] &&
              v_cache->ne[0] == kKvBlockPositions * v->ne[0] * v->ne[1] &&
              k_cache->ne[1] == v_cache->ne[1] && is_vector(cells, DType::i32, k->ne[2]),
          "kv_write", {k, v, k_cache, v_cache, cells});
  Tensor* node = graph.new_view(k_cache, k_cache->ne, k_cache->nb, 0);
  node->op = Op::kv_write;
  for (Tensor* source : {k, v, v_cache, cells}) graph.add_source(node, source);
  return node;
}

Tensor* attention(Graph& graph, const AttentionSources& s, const AttentionParams& params) {
  const int64_t n_tokens = s.q->ne[2];
  require(s.q->ne[1] % params.n_head_kv == 0 && params.head_dim_v > 0 &&
              s.k_cache->ne[0] == kKvBlockPositions * s.q->ne[0] * params.n_head_kv &&
              s.v_cache->ne[0] == kKvBlockPositions * params.head_dim_v * params.n_head_kv &&
              s.block_table->dtype == DType::i32 && is_vector(s.seq, DType::i32, n_tokens) &&
              is_vector(s.positions, DType::i32, n_tokens),
          "attention", {s.q, s.k_cache, s.v_cache, s.block_table, s.seq, s.positions});
  std::vector<Tensor*> sources = {s.q, s.k_cache, s.v_cache, s.block_table, s.seq, s.positions};
  if (s.sinks != nullptr) {
    require(is_vector(s.sinks, DType::f32, s.q->ne[1]), "attention", {s.q, s.sinks});
    sources.push_back(s.sinks);
  }
  return graph.new_node(Op::attention, DType::f32, {params.head_dim_v, s.q->ne[1], n_tokens, 1},
                        std::move(sources), params);
}

Tensor* top_k(Graph& graph, Tensor* x, int32_t k) {
  require(k > 0 && k <= x->ne[0], "top_k", {x});
  return graph.new_node(Op::top_k, DType::i32, {k, x->ne[1], 1, 1}, {x}, TopKParams{k});
}

Tensor* route_weights(Graph& graph, Tensor* logits, Tensor* ids, const RouteParams& params) {
  require(logits->ne[1] == ids->ne[1] && ids->dtype == DType::i32, "route_weights", {logits, ids});
  return graph.new_node(Op::route_weights, DType::f32, ids->ne, {logits, ids}, params);
}

Tensor* combine(Graph& graph, Tensor* x, Tensor* weights) {
  require(x->ne[1] == weights->ne[0] && x->ne[2] == weights->ne[1], "combine", {x, weights});
  return graph.new_node(Op::combine, DType::f32, {x->ne[0], x->ne[2], 1, 1}, {x, weights});
}

}  // namespace strata::ops
