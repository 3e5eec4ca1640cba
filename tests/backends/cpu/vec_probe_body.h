// Fills a VecProbe from the vector header included before.
#pragma once

#include "backends/cpu/kernels/math.h"
#include "tests/backends/cpu/vec_probe.h"

namespace strata::cpu::STRATA_CPU_ISA {

inline void probe_unary(int operation, const float* x, float* y) {
  const F32x16 v = load(x);
  switch (operation) {
    case 0:
      return store(y, sqrt(v));
    case 1:
      return store(y, neg(v));
    case 2:
      return store(y, abs(v));
    case 3:
      return store(y, exp(v));
    case 4:
      return store(y, sigmoid(v));
    case 5:
      return store(y, silu(v));
    case 6:
      return store(y, gelu_tanh(v));
    case 7:
      return store(y, tanh(v));
    case 8:
      return store(y, relu(v));
    case 9:
      return store(y, to_f32(to_i32(v)));
    default:
      return store(y, swap_pairs(v));
  }
}

inline void probe_ternary(int operation, const float* a, const float* b, const float* c, float* y) {
  const F32x16 u = load(a);
  const F32x16 v = load(b);
  const F32x16 w = load(c);
  switch (operation) {
    case 0:
      return store(y, add(u, v));
    case 1:
      return store(y, sub(u, v));
    case 2:
      return store(y, mul(u, v));
    case 3:
      return store(y, div(u, v));
    case 4:
      return store(y, fma(u, v, w));
    case 5:
      return store(y, fnma(u, v, w));
    case 6:
      return store(y, min(u, v));
    case 7:
      return store(y, max(u, v));
    case 8:
      return store(y, copy_sign(u, v));
    default:
      return store(y, select(less(u, v), w, zero_f32()));
  }
}

inline VecProbe make_probe() {
  VecProbe probe{};
  probe.unary = probe_unary;
  probe.ternary = probe_ternary;
  probe.reduce_tree = [](const float* x) { return reduce_tree(load(x)); };
  probe.reduce_max = [](const float* x) { return reduce_max(load(x)); };
  probe.from_f16 = [](const uint16_t* x, float* y) { store(y, load_f16(x)); };
  probe.to_f16 = [](const float* x, uint16_t* y) { store_f16(y, load(x)); };
  probe.from_bf16 = [](const uint16_t* x, float* y) { store(y, load_bf16(x)); };
  probe.copy_n = [](const float* x, float* y, int n) { store_n(y, load_n(x, n), n); };
  probe.copy_f16_n = [](const uint16_t* x, uint16_t* y, int n) {
    if (n > 0) store_f16_n(y, load_f16_n(x, n), n);
  };
  probe.round_to_i8 = [](const float* x, int8_t* y) { store_i8(y, to_i32(load(x))); };
  probe.widen = [](const int8_t* x, int32_t* y_signed, int32_t* y_unsigned) {
    store_i32(y_signed, load_i8(x));
    store_i32(y_unsigned, load_u8(reinterpret_cast<const uint8_t*>(x)));
  };
  probe.nibbles = [](const int32_t* x, float* y) { store(y, nibble_to_f32(load_i32(x))); };
  probe.select_range = [](const float* a, const float* b, int begin, int end, float* y) {
    store(y, select(lane_range(begin, end), load(a), load(b)));
  };
  return probe;
}

}  // namespace strata::cpu::STRATA_CPU_ISA
