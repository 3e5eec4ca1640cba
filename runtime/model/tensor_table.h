// TensorTable: every tensor that a model must or may have, with its shape and its place.
//
// An architecture declares its tensors once; the table is then compared with a file (missing,
// misshapen and unknown tensors are refused, since each of them would mean another computation than
// ours) and asked which of them a layer range needs. No bytes are read here.
//
// Threads: externally synchronised while it is filled, then any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/hparams.h"
#include "runtime/model/layer_range.h"
#include "runtime/tensor/tensor.h"

namespace strata {

// Which ops read a tensor: decides the memory it is put in and the types it may have.
enum class TensorUse : uint8_t {
  vector,  // norms and biases, F32
  matrix,  // mul_mat, mul_mat_id
  table,   // get_rows; a tied embedding is read by mul_mat too
};

// Which part of a model reads a tensor.
struct TensorPart {
  enum Kind : uint8_t { input, layer, output, all_layers };
  Kind kind = input;
  int32_t index = 0;  // of a layer
};
inline constexpr TensorPart kInputPart = {TensorPart::input, 0};
inline constexpr TensorPart kOutputPart = {TensorPart::output, 0};
inline constexpr TensorPart kAllLayers = {TensorPart::all_layers, 0};
inline TensorPart layer_part(int32_t index) { return {TensorPart::layer, index}; }

struct TensorSpec {
  std::string name;
  Dims ne = {1, 1, 1, 1};
  TensorUse use = TensorUse::vector;
  TensorPart part;
  bool optional = false;
};

// A tensor that a stage holds.
struct StageTensor {
  const TensorInfo* info = nullptr;
  TensorUse use = TensorUse::vector;
  TensorPart part;  // the first part of the stage that reads it
};

class TensorTable {
 public:
  void vector(TensorPart part, std::string name, int64_t n);
  void matrix(TensorPart part, std::string name, int64_t n_in, int64_t n_out);
  // {n_in, n_out, n_expert}
  void experts(TensorPart part, std::string name, int64_t n_in, int64_t n_out, int64_t n_expert);
  void table(TensorPart part, std::string name, int64_t n, int64_t rows);
  void optional_vector(TensorPart part, std::string name, int64_t n);
  void optional_matrix(TensorPart part, std::string name, int64_t n_in, int64_t n_out);
  // Matrix `name` with name.weight, and an optional or a required name.bias.
  void linear(TensorPart part, const std::string& name, int64_t n_in, int64_t n_out,
              bool bias_required = false);
  // Where the file has no output.weight, the head reads the token embedding.
  void tied_head(int64_t n_embd, int64_t n_vocab);

  const std::vector<TensorSpec>& specs() const { return specs_; }

  // Errors: INVALID_ARGUMENT "<file>: tensor '<name>' ...: shape wanted {..}, shape found {..}" for
  // the whole model, whatever stage asks.
  Status check(const GgufFile& file) const;
  // The tensors that the range reads, each once, in file order. Requires: check() passed.
  std::vector<StageTensor> select(const GgufFile& file, const LayerRange& range) const;

 private:
  void add(TensorSpec spec) { specs_.push_back(std::move(spec)); }

  std::vector<TensorSpec> specs_;
};

// The architecture's table for these parameters.
Result<TensorTable> make_tensor_table(const Hparams& hparams);

}  // namespace strata
