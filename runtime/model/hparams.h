// Hparams: a model's hyper-parameters, read from metadata and checked once, for every later user.
//
// read_hparams() takes the keys that all architectures share ("llama.block_count"), and lets the
// architecture (architecture.h) set what is its own: norms, windows, scales, rope style. After it
// succeeded, every count is positive and bounded, heads divide, rope dimensions are even and lie in
// a head, floats are finite: graph builders and allocators need not look again. Whether the tensors
// fit these numbers is tensor_table.h's to check.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ("Standardized key-value
// pairs"). Threads: a plain value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/tensor/op.h"

namespace strata {

// Bounds on what a file may ask for; real models stay below.
inline constexpr int32_t kLayersMax = 512;
inline constexpr int32_t kContextMax = 1 << 27;  // positions are int32 and cells position * block
inline constexpr int32_t kWidthMax = 1 << 20;    // of embeddings, heads, feed-forward
inline constexpr int32_t kExpertsMax = 4096;

// Layers that share block tables: those of one attention window. Groups are numbered over the whole
// model, so that a table means the same on every stage.
struct KvGroup {
  int32_t window = 0;  // positions a token sees, itself included; 0: all
  std::vector<int32_t> layers;
};

struct Hparams {
  std::string architecture;
  int32_t n_layer = 0;
  int32_t n_embd = 0;
  int32_t n_vocab = 0;
  int32_t n_ctx_train = 0;
  int32_t n_ff = 0;

  int32_t n_head = 0;
  int32_t n_head_kv = 0;
  int32_t head_dim_k = 0;
  int32_t head_dim_v = 0;
  float attention_scale = 0;     // multiplies q·k
  float attention_soft_cap = 0;  // 0: none
  float logits_soft_cap = 0;     // 0: none
  float embedding_scale = 1;
  float norm_eps = 0;

  bool uses_rope = true;  // false: positions are learned and end at n_ctx_train
  RopeParams rope;        // of layers that see everything
  RopeParams rope_local;  // of layers with a window

  int32_t n_expert = 0;  // 0: a dense feed-forward
  int32_t n_expert_used = 0;

  std::vector<int32_t> layer_windows;  // {n_layer}; 0: sees everything
  std::vector<KvGroup> kv_groups;      // by first layer; at least one
  std::vector<int32_t> layer_groups;   // {n_layer}: index into kv_groups

  // Elements of one KV block of one layer.
  int64_t k_block_elements() const;
  int64_t v_block_elements() const;
  const RopeParams& rope_of(int32_t layer) const {
    return layer_windows[static_cast<size_t>(layer)] > 0 ? rope_local : rope;
  }
};

// Errors: INVALID_ARGUMENT naming key, wanted and found; UNIMPLEMENTED with the known ones for an
// unknown architecture or rope scaling.
Result<Hparams> read_hparams(const GgufFile& file);

}  // namespace strata
