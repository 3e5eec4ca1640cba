// What machine_bench's arithmetic rows time: one instruction, or the few that make one step, in
// independent chains side by side, enough of them that its latency does not count.
//
// Chains begin with values of their own that the compiler cannot see: of chains that are equal it
// would keep one, whose latency would then pass for a rate. performance_test.py counts their
// registers in the program.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace strata::bench {

// Steps: the register type, how many chains run side by side (more than latency times ports, 12 in
// the worst case, since the two ports do not always share evenly), the operations that a step
// counts for (a multiply and an add are two), what chain `i` starts from, and its next link.
// kHasProduct: a part that does not depend on the chain, which the compiler is kept from moving out
// of the loop.
struct Int8Avx512Vnni {
  using Vector = __m512i;
  static constexpr int kChains = 24;
  static constexpr int64_t kOps = 128;
  static constexpr bool kHasProduct = false;
  __attribute__((target("avx512f,avx512bw,avx512vnni"))) static Vector start(int i) {
    return _mm512_set1_epi8(static_cast<char>(3 + i));
  }
  __attribute__((target("avx512f,avx512bw,avx512vnni"))) static Vector next(Vector sum, Vector a) {
    return _mm512_dpbusd_epi32(sum, a, a);
  }
};
struct Int8Avx512 {
  using Vector = __m512i;
  static constexpr int kChains = 12;
  static constexpr int64_t kOps = 128;
  static constexpr bool kHasProduct = true;
  __attribute__((target("avx512f,avx512bw"))) static Vector start(int i) {
    return _mm512_set1_epi8(static_cast<char>(3 + i));
  }
  __attribute__((target("avx512f,avx512bw"))) static Vector next(Vector sum, Vector a) {
    return _mm512_add_epi32(sum,
                            _mm512_madd_epi16(_mm512_maddubs_epi16(a, a), _mm512_set1_epi16(1)));
  }
};
struct F32Avx512 {
  using Vector = __m512;
  static constexpr int kChains = 24;
  static constexpr int64_t kOps = 32;
  static constexpr bool kHasProduct = false;
  __attribute__((target("avx512f"))) static Vector start(int i) {
    return _mm512_set1_ps(0.5f + 0.01f * static_cast<float>(i));
  }
  __attribute__((target("avx512f"))) static Vector next(Vector sum, Vector a) {
    return _mm512_fmadd_ps(a, a, sum);
  }
};
struct Int8Avx2Vnni {
  using Vector = __m256i;
  static constexpr int kChains = 12;
  static constexpr int64_t kOps = 64;
  static constexpr bool kHasProduct = false;
  __attribute__((target("avx2,avxvnni"))) static Vector start(int i) {
    return _mm256_set1_epi8(static_cast<char>(3 + i));
  }
  __attribute__((target("avx2,avxvnni"))) static Vector next(Vector sum, Vector a) {
    return _mm256_dpbusd_avx_epi32(sum, a, a);
  }
};
struct Int8Avx2 {
  using Vector = __m256i;
  static constexpr int kChains = 8;
  static constexpr int64_t kOps = 64;
  static constexpr bool kHasProduct = true;
  __attribute__((target("avx2"))) static Vector start(int i) {
    return _mm256_set1_epi8(static_cast<char>(3 + i));
  }
  __attribute__((target("avx2"))) static Vector next(Vector sum, Vector a) {
    return _mm256_add_epi32(sum,
                            _mm256_madd_epi16(_mm256_maddubs_epi16(a, a), _mm256_set1_epi16(1)));
  }
};
struct F32Avx2 {
  using Vector = __m256;
  static constexpr int kChains = 12;
  static constexpr int64_t kOps = 16;
  static constexpr bool kHasProduct = false;
  __attribute__((target("avx2,fma"))) static Vector start(int i) {
    return _mm256_set1_ps(0.5f + 0.01f * static_cast<float>(i));
  }
  __attribute__((target("avx2,fma"))) static Vector next(Vector sum, Vector a) {
    return _mm256_fmadd_ps(a, a, sum);
  }
};

// The loop, once for each width: the attribute is the loop's own, and a step is inlined only where
// all that it needs is there. Runs each chain for so many steps.
template <typename Step>
__attribute__((target("avx512f,avx512bw,avx512vnni"), noinline)) void run_avx512(int64_t rounds) {
  typename Step::Vector a = Step::start(0);
  typename Step::Vector sums[Step::kChains];
#pragma GCC unroll 32
  for (int i = 0; i < Step::kChains; ++i) {
    sums[i] = Step::start(i);
    asm volatile("" : "+v"(sums[i]));
  }
  for (int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+v"(a));
#pragma GCC unroll 32
    for (auto& sum : sums) {
      if constexpr (Step::kHasProduct) asm volatile("" : "+v"(a));
      sum = Step::next(sum, a);
    }
  }
#pragma GCC unroll 32
  for (auto& sum : sums) asm volatile("" : "+v"(sum));
}

template <typename Step>
__attribute__((target("avx2,fma,avxvnni"), noinline)) void run_avx2(int64_t rounds) {
  typename Step::Vector a = Step::start(0);
  typename Step::Vector sums[Step::kChains];
#pragma GCC unroll 32
  for (int i = 0; i < Step::kChains; ++i) {
    sums[i] = Step::start(i);
    asm volatile("" : "+x"(sums[i]));
  }
  for (int64_t round = 0; round < rounds; ++round) {
    asm volatile("" : "+x"(a));
#pragma GCC unroll 32
    for (auto& sum : sums) {
      if constexpr (Step::kHasProduct) asm volatile("" : "+x"(a));
      sum = Step::next(sum, a);
    }
  }
#pragma GCC unroll 32
  for (auto& sum : sums) asm volatile("" : "+x"(sum));
}

}  // namespace strata::bench
