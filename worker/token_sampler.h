// TokenSampler: from a row's logits to the sequence's next token, at the tail; within its grammar
// if it has one.
//
// The state of a grammar stands in the slot and is a function of (grammar, tokens so far): a
// sequence that is opened again, here or on another tail, brings its tokens and goes on alike.
//
// Threads: the stage thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "runtime/base/status.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/sampling/sampler.h"
#include "worker/grammar_loader.h"
#include "worker/slot_table.h"

namespace strata::worker {

class TokenSampler {
 public:
  // `tokenizer_file`: see LocalStageOptions.
  explicit TokenSampler(std::shared_ptr<const GgufFile> tokenizer_file);

  // A sequence begins; its grammar will be asked for.
  void open(const OpenSequence& sequence);

  struct Choice {
    SampledToken token;  // id -1 if there is none
    // Without a token: end_token where the grammar lets nothing follow, or not_ready.
    SequenceEnd end = SequenceEnd::none;
  };
  // `logits`: {n_vocab}, finite. `position`: of the token. Errors: those of Sampler::sample() and
  // of the grammar; they end this sequence only.
  Result<Choice> sample(Slot& slot, std::span<const float> logits, uint32_t position);

 private:
  Result<bool> begin_grammar(Slot& slot);
  Result<Choice> sample_constrained(Slot& slot, std::span<const float> logits, uint32_t position);

  Sampler sampler_;
  GrammarLoader grammars_;
};

}  // namespace strata::worker
