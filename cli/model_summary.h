// What people want to know of a model file at a glance, for any architecture.
//
// Read leniently: a key that is missing or odd leaves its fact out, since inspecting a file must
// not need a model that runs. Whether a model is sound is for runtime/model to say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/tensor/dtype.h"

namespace strata::cli {

// All tensors of one type.
struct TypeShare {
  DType dtype = DType::f32;
  uint64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;

  double bits_per_weight() const;
};

// A number that may differ from layer to layer: equal ends where it does not.
struct NumberRange {
  int64_t least = 0;
  int64_t most = 0;
};

struct SpecialToken {
  std::string role;  // "bos", "eos", ...
  int64_t id = 0;
  std::string text;  // empty if the id is not in the vocabulary
};

struct ModelSummary {
  std::string architecture;  // "unknown" without the key
  std::string name;
  std::string license;
  uint64_t parameters = 0;
  uint64_t file_bytes = 0;
  uint64_t tensor_bytes = 0;
  uint64_t tensor_count = 0;
  double bits_per_weight = 0;    // over all tensors; 0 without any
  std::vector<TypeShare> types;  // most bytes first

  std::optional<int64_t> context_length;
  std::optional<int64_t> layers;
  std::optional<int64_t> embedding_length;
  std::optional<NumberRange> feed_forward_length;
  std::optional<NumberRange> heads;
  std::optional<NumberRange> kv_heads;
  std::optional<int64_t> head_size;
  std::optional<int64_t> sliding_window;
  std::optional<int64_t> experts;
  std::optional<int64_t> experts_used;
  std::optional<double> rope_base;
  std::string rope_scaling;  // "linear", "yarn", ...; empty if none

  std::string tokenizer;      // "llama", "gpt2", ...; empty without one
  std::string pre_tokenizer;  // "smollm", ...; empty without one
  std::optional<uint64_t> vocabulary;
  std::optional<uint64_t> merges;
  std::vector<SpecialToken> special_tokens;
  bool chat_template = false;
};

ModelSummary summarise(const GgufFile& model);

// "134.5 million", "1.24 billion".
std::string human_parameters(uint64_t parameters);

}  // namespace strata::cli
