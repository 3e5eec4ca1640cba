// Everything but matrix products that the CPU backend computes with vectors: one table of function
// pointers per path, filled by kernels_{scalar,avx2,avx512}.cpp from kernels/*.h.
//
// Kernels are total: shapes and types were checked when the graph was compiled. They work on a row
// or a span; who calls them on which thread is the executor's affair. All tables give equal bits.
// Included by the path files, so only <cstdint> and <cstddef> may be included here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::cpu {

enum class KvType : uint8_t { f32, f16, q8_0, q4_0 };

// One token's rotation, made once per run by RopeTable and read by every head of every layer.
struct RopeArgs {
  const float* x = nullptr;  // one head's {head_dim}
  float* y = nullptr;        // may be x
  int32_t head_dim = 0;
  int32_t n_rot = 0;
  // Interleaved: n_rot cosines, each twice, then n_rot sines as -s, s. Halves: n_rot / 2 cosines,
  // then n_rot / 2 sines.
  const float* table = nullptr;
};

// The cache as the kernels see it (kernels/kv_block.h has the layout inside a block).
struct KvCacheView {
  std::byte* data = nullptr;
  uint64_t block_bytes = 0;
  KvType type = KvType::f32;
  int32_t head_dim = 0;
};

struct AttentionArgs {
  const std::byte* q = nullptr;  // F32 {head_dim, n_head, n_tokens}
  uint64_t q_head_stride = 0;    // bytes
  uint64_t q_token_stride = 0;
  float* y = nullptr;  // dense {head_dim_v, n_head, n_tokens}
  KvCacheView k;
  KvCacheView v;
  int32_t n_head = 0;
  int32_t n_head_kv = 0;
  const int32_t* positions = nullptr;  // {n_tokens}
  const float* sinks = nullptr;        // {n_head}, or null
  float scale = 1.0f;
  float soft_cap = 0.0f;  // 0: off
  int32_t window = 0;     // 0: all
};

// Tokens of one sequence and query heads of one key head, computed together.
struct AttentionTask {
  const int32_t* blocks = nullptr;  // the sequence's row of the block table
  int32_t token_begin = 0;
  int32_t token_count = 0;
  int32_t head_begin = 0;
  int32_t head_count = 0;
  int32_t head_kv = 0;
  // What this thread is likely to run next, or null. Without a window its first tile is fetched
  // ahead.
  const AttentionTask* next = nullptr;
};

// The largest head of keys or values.
inline constexpr int32_t kMaxHeadDim = 1024;

// Fixed by the numerics contract: positions per tile (one running maximum each) and per segment
// (one partial result each), both counted from position 0.
inline constexpr int32_t kAttentionTile = 64;
inline constexpr int32_t kAttentionSegment = 512;
// Most rows (tokens x heads) of a task.
inline constexpr int32_t kAttentionMaxRows = 48;

// A row's partial result over a segment: maximum, sum, then the unnormalised output.
inline constexpr int64_t kPartialHeader = 16;  // floats before the output, keeping it aligned
inline constexpr int64_t partial_floats(int64_t head_dim_v) {
  return kPartialHeader + (head_dim_v + 15) / 16 * 16;
}

struct KernelTable {
  const char* name;

  // One row of n; y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int64_t n,
                     float* y);

  // Spans of n; y may be the first operand.
  void (*add)(const float* a, const float* b, int64_t n, float* y);
  void (*add_scalar)(const float* a, float b, int64_t n, float* y);
  void (*multiply)(const float* a, const float* b, int64_t n, float* y);
  void (*scale)(const float* x, float factor, int64_t n, float* y);
  void (*silu)(const float* x, int64_t n, float* y);
  void (*gelu_tanh)(const float* x, int64_t n, float* y);
  void (*relu)(const float* x, int64_t n, float* y);
  void (*silu_gated)(const float* gate, const float* up, int64_t n, float* y);
  void (*gelu_tanh_gated)(const float* gate, const float* up, int64_t n, float* y);
  void (*relu_gated)(const float* gate, const float* up, int64_t n, float* y);
  void (*soft_cap)(const float* x, float cap, int64_t n, float* y);
  // y = a * x, and y = a * x + y rounded once.
  void (*multiply_add)(const float* x, float a, int64_t n, float* y);
  void (*softmax)(const float* x, int64_t n, float* y);
  void (*sigmoid)(const float* x, int64_t n, float* y);

  void (*rope_interleaved)(const RopeArgs& args);
  void (*rope_halves)(const RopeArgs& args);

  // One position's {head_dim} of one head into its cell.
  void (*write_k)(const KvCacheView& cache, int64_t cell, int32_t head, const float* k);
  void (*write_v)(const KvCacheView& cache, int64_t cell, int32_t head, const float* v);

  // Floats of scratch for a task; 64-byte aligned memory.
  int64_t (*attention_scratch_floats)(int32_t head_dim, int32_t head_dim_v);
  // A whole task: all segments, merged, into args.y.
  void (*attention)(const AttentionArgs& args, const AttentionTask& task, float* scratch);
  // One segment of a task: a partial result per row, rows in order token by token, each
  // partial_floats(head_dim_v). A row that sees nothing of the segment gets the sum -1.
  void (*attention_segment)(const AttentionArgs& args, const AttentionTask& task, int64_t segment,
                            float* scratch, float* partials);
  // The partial results of segments [0, n) of a task into args.y: `segment_stride` floats from one
  // segment's to the next's. Overwrites the partials.
  void (*attention_merge)(const AttentionArgs& args, const AttentionTask& task, float* partials,
                          int64_t segment_stride, int64_t n_segments);
};

const KernelTable& kernels_scalar();
const KernelTable& kernels_avx2();
const KernelTable& kernels_avx512();

}  // namespace strata::cpu
