// Operations on spans: each output element depends on the inputs at its own index only.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

// y[i] = function(x[i]).
template <typename Function>
inline void map_span(const float* x, int64_t n, float* y, Function function) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, function(load(x + i)));
  const int tail = static_cast<int>(n - i);
  if (tail > 0) store_n(y + i, function(load_n(x + i, tail)), tail);
}

// y[i] = function(a[i], b[i]).
template <typename Function>
inline void map_spans(const float* a, const float* b, int64_t n, float* y, Function function) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) store(y + i, function(load(a + i), load(b + i)));
  const int tail = static_cast<int>(n - i);
  if (tail > 0) store_n(y + i, function(load_n(a + i, tail), load_n(b + i, tail)), tail);
}

inline void add_spans(const float* a, const float* b, int64_t n, float* y) {
  map_spans(a, b, n, y, [](F32x16 u, F32x16 v) { return add(u, v); });
}
inline void add_scalar(const float* a, float b, int64_t n, float* y) {
  map_span(a, n, y, [b](F32x16 u) { return add(u, broadcast(b)); });
}
inline void multiply_spans(const float* a, const float* b, int64_t n, float* y) {
  map_spans(a, b, n, y, [](F32x16 u, F32x16 v) { return mul(u, v); });
}
inline void scale_span(const float* x, float factor, int64_t n, float* y) {
  map_span(x, n, y, [factor](F32x16 u) { return mul(u, broadcast(factor)); });
}
inline void silu_span(const float* x, int64_t n, float* y) {
  map_span(x, n, y, [](F32x16 u) { return silu(u); });
}
inline void gelu_tanh_span(const float* x, int64_t n, float* y) {
  map_span(x, n, y, [](F32x16 u) { return gelu_tanh(u); });
}
inline void relu_span(const float* x, int64_t n, float* y) {
  map_span(x, n, y, [](F32x16 u) { return relu(u); });
}
inline void sigmoid_span(const float* x, int64_t n, float* y) {
  map_span(x, n, y, [](F32x16 u) { return sigmoid(u); });
}
inline void silu_gated(const float* gate, const float* up, int64_t n, float* y) {
  map_spans(gate, up, n, y, [](F32x16 g, F32x16 u) { return mul(silu(g), u); });
}
inline void gelu_tanh_gated(const float* gate, const float* up, int64_t n, float* y) {
  map_spans(gate, up, n, y, [](F32x16 g, F32x16 u) { return mul(gelu_tanh(g), u); });
}
inline void relu_gated(const float* gate, const float* up, int64_t n, float* y) {
  map_spans(gate, up, n, y, [](F32x16 g, F32x16 u) { return mul(relu(g), u); });
}
// cap * tanh(x / cap).
inline void soft_cap_span(const float* x, float cap, int64_t n, float* y) {
  map_span(x, n, y, [cap](F32x16 u) { return mul(broadcast(cap), tanh(div(u, broadcast(cap)))); });
}
// y = a * x + y, rounded once.
inline void multiply_add_span(const float* x, float a, int64_t n, float* y) {
  map_spans(x, y, n, y, [a](F32x16 u, F32x16 v) { return fma(u, broadcast(a), v); });
}

}  // namespace strata::cpu::STRATA_CPU_ISA
