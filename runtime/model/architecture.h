// Architecture: what one family of models adds to the shared blocks, one file each in arch/.
//
// An architecture says three things: its own hyper-parameters, the tensors it needs with their
// shapes, and how embedding, one layer and the head are built from blocks.h. Everything else
// (layer ranges, caches, loading, splitting) is the same for all. To add one: write arch/NAME.cpp
// with a function that returns it, and add one line to architecture.cpp.
//
// Threads: architectures are immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/model/blocks.h"
#include "runtime/model/hparams.h"
#include "runtime/model/model_keys.h"
#include "runtime/model/tensor_table.h"

namespace strata {

class Architecture {
 public:
  virtual ~Architecture() = default;

  // The value of general.architecture, which also begins the names of its keys.
  virtual std::string_view name() const = 0;

  // False for models with learned positions, which end at the trained context.
  virtual bool uses_rope() const { return true; }

  // Sets what differs from the common parameters, which are filled in already.
  // Errors: INVALID_ARGUMENT by ModelKeys.
  virtual Status read_hparams(const ModelKeys& keys, Hparams& hparams) const = 0;

  // Every tensor of a whole model.
  virtual void declare_tensors(const Hparams& hparams, TensorTable& table) const = 0;

  // tokens I32 {n_tokens} -> residual stream {n_embd, n_tokens}: blocks::token_embedding, unless
  // positions are added here.
  virtual Tensor* embed(ModelBuilder& builder, Tensor* tokens) const;
  // Residual stream -> residual stream, {n_embd, n_tokens} both.
  virtual Tensor* layer(ModelBuilder& builder, int32_t layer, Tensor* x) const = 0;
  // Residual stream {n_embd, n_outputs} -> logits {n_vocab, n_outputs}: the RMS norm output_norm,
  // unless it is another one, and the head.
  virtual Tensor* head(ModelBuilder& builder, Tensor* x) const;
};

// Errors: UNIMPLEMENTED with the list of known ones.
Result<const Architecture*> find_architecture(std::string_view name);
std::span<const Architecture* const> all_architectures();

}  // namespace strata
