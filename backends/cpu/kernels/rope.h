// Rotary position embedding of one head by a table of cosines and sines (RopeArgs).
// Source: RoFormer (arXiv 2104.09864), section 3.4.2.
#pragma once

namespace strata::cpu::STRATA_CPU_ISA {

// Dimensions behind n_rot pass unchanged.
inline void copy_unrotated(const RopeArgs& args) {
  if (args.x == args.y) return;
  for (int32_t i = args.n_rot; i < args.head_dim; ++i) args.y[i] = args.x[i];
}

// Pairs (2i, 2i + 1): y0 = x0 c - x1 s, y1 = x1 c + x0 s, the second product fused into the sum.
inline void rope_interleaved(const RopeArgs& args) {
  const float* cosines = args.table;
  const float* sines = args.table + args.n_rot;
  for (int32_t i = 0; i < args.n_rot; i += 16) {
    const int count = args.n_rot - i < 16 ? args.n_rot - i : 16;
    const F32x16 x = load_n(args.x + i, count);
    const F32x16 turned =
        fma(swap_pairs(x), load_n(sines + i, count), mul(x, load_n(cosines + i, count)));
    store_n(args.y + i, turned, count);
  }
  copy_unrotated(args);
}

// Pairs (i, i + n_rot / 2), the same arithmetic.
inline void rope_halves(const RopeArgs& args) {
  const int32_t half = args.n_rot / 2;
  const float* cosines = args.table;
  const float* sines = args.table + half;
  for (int32_t i = 0; i < half; i += 16) {
    const int count = half - i < 16 ? half - i : 16;
    const F32x16 x0 = load_n(args.x + i, count);
    const F32x16 x1 = load_n(args.x + half + i, count);
    const F32x16 c = load_n(cosines + i, count);
    const F32x16 s = load_n(sines + i, count);
    store_n(args.y + i, fnma(x1, s, mul(x0, c)), count);
    store_n(args.y + half + i, fma(x0, s, mul(x1, c)), count);
  }
  copy_unrotated(args);
}

}  // namespace strata::cpu::STRATA_CPU_ISA
