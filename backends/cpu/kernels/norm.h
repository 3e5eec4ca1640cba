// Row norms. Sums are 16 partial sums by index modulo 16, folded by the one tree.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

// y = x / sqrt(mean(x^2) + eps) * weight. Source: RMSNorm (arXiv 1910.07467).
inline void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
  F32x16 squares = zero_f32();
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const F32x16 v = load(x + i);
    squares = fma(v, v, squares);
  }
  const int tail = static_cast<int>(n - i);
  if (tail > 0) {
    const F32x16 v = load_n(x + i, tail);
    squares = fma(v, v, squares);
  }
  const float mean = reduce_tree(squares) / static_cast<float>(n);
  const F32x16 factor = broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for (i = 0; i + 16 <= n; i += 16) {
    store(y + i, mul(mul(load(x + i), factor), load(weight + i)));
  }
  if (tail > 0) {
    store_n(y + i, mul(mul(load_n(x + i, tail), factor), load_n(weight + i, tail)), tail);
  }
}

// y = (x - mean) / sqrt(variance + eps) * weight + bias, the variance in a second pass.
// Source: layer normalisation (arXiv 1607.06450).
inline void layer_norm(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                       float* y) {
  const int tail = static_cast<int>(n % 16);
  const int64_t whole = n - tail;
  F32x16 sum = zero_f32();
  for (int64_t i = 0; i < whole; i += 16) sum = add(sum, load(x + i));
  if (tail > 0) sum = add(sum, load_n(x + whole, tail));
  const F32x16 mean = broadcast(reduce_tree(sum) / static_cast<float>(n));

  F32x16 squares = zero_f32();
  for (int64_t i = 0; i < whole; i += 16) {
    const F32x16 d = sub(load(x + i), mean);
    squares = fma(d, d, squares);
  }
  if (tail > 0) {
    const F32x16 d = select(lane_range(0, tail), sub(load_n(x + whole, tail), mean), zero_f32());
    squares = fma(d, d, squares);
  }
  const float variance = reduce_tree(squares) / static_cast<float>(n);
  const F32x16 factor = broadcast(1.0f / __builtin_sqrtf(variance + eps));
  for (int64_t i = 0; i < whole; i += 16) {
    const F32x16 normed = mul(sub(load(x + i), mean), factor);
    store(y + i, fma(normed, load(weight + i), load(bias + i)));
  }
  if (tail > 0) {
    const F32x16 normed = mul(sub(load_n(x + whole, tail), mean), factor);
    store_n(y + whole, fma(normed, load_n(weight + whole, tail), load_n(bias + whole, tail)), tail);
  }
}

// y = e^(x - max x) / sum, sum as above.
inline void softmax(const float* x, int64_t n, float* y) {
  float largest = x[0];
  for (int64_t i = 1; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  const F32x16 shift = broadcast(largest);
  F32x16 sum = zero_f32();
  for (int64_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    const F32x16 e = exp(sub(load_n(x + i, count), shift));
    sum = add(sum, select(lane_range(0, count), e, zero_f32()));
    store_n(y + i, e, count);
  }
  const F32x16 factor = broadcast(1.0f / reduce_tree(sum));
  for (int64_t i = 0; i < n; i += 16) {
    const int count = n - i < 16 ? static_cast<int>(n - i) : 16;
    store_n(y + i, mul(load_n(y + i, count), factor), count);
  }
}

}  // namespace strata::cpu::STRATA_CPU_ISA
