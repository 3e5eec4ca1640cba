// ModelProfile: what the planner must know of a model, per layer and in exact bytes.
//
// Made once from the file's header; nothing is loaded. A *unit* is what a stage takes whole: the
// layers 0 .. n - 1, then the output head as unit n. The head counts as a unit of its own because
// in small models it outweighs many layers (73% of Gemma 3 270M), so that a balanced plan may have
// a stage that holds nothing else. The token embedding goes with layer 0.
//
// Threads: plain values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/stage_model.h"

namespace strata::coordinator {

struct LayerProfile {
  uint64_t weights_bytes = 0;   // in memory, as the stage holds them
  uint64_t kv_block_bytes = 0;  // of one block of 16 positions
  uint32_t group = 0;           // of the KV cache
};

struct ModelProfile {
  std::string name;
  std::vector<LayerProfile> layers;
  uint64_t input_bytes = 0;          // token and position embedding
  uint64_t output_bytes = 0;         // final norm and head, read once a step
  uint64_t output_shared_bytes = 0;  // part of output_bytes that is the embedding itself (tied)
  // Activations of the largest step: [has embedding][has head].
  std::array<std::array<uint64_t, 2>, 2> compute_bytes = {};
  // Of the graphs that a stage keeps: for each layer, and for each of the ends.
  uint64_t layer_graph_bytes = 0;
  uint64_t end_graph_bytes = 0;
  std::vector<uint32_t> group_windows;  // of the KV groups; 0: sees everything
  uint32_t n_embd = 0;
  uint32_t n_vocab = 0;
  uint32_t context_trained = 0;

  uint32_t layer_count() const { return static_cast<uint32_t>(layers.size()); }
  uint32_t unit_count() const { return layer_count() + 1; }
};

struct ProfileOptions {
  DType kv_type = DType::f16;
  uint32_t step_tokens = 512;
  uint32_t slots = 16;
  uint32_t context = 4096;
  uint32_t max_outputs = 0;  // positions of one step whose logits are computed; 0: `slots`
  // Whose memory layout counts. Workers of another kind lay weights out in the same number of
  // bytes, or refuse the load with both numbers.
  std::vector<Device*> devices;
};

// Errors: those of StageModel::estimate().
Result<ModelProfile> profile_model(const GgufFile& file, const ProfileOptions& options);

}  // namespace strata::coordinator
