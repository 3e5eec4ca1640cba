// Constraint: one answer under a grammar, token by token; and GrammarCache: the grammars that a
// stage has compiled, with what it has found out about them.
//
//   GrammarCache::start(spec) -> Constraint
//   each token: mask() before the sampler, accept(token) after it
//
// A constraint is a function of the grammar and the tokens so far: a worker that takes over starts
// anew and accepts the tokens again.
//
// Threads: externally synchronised, a cache together with its constraints.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/mask_cache.h"
#include "runtime/grammar/matcher.h"
#include "runtime/grammar/vocabulary.h"
#include "runtime/sampling/grammar_spec.h"
#include "runtime/sampling/token_mask.h"

namespace strata::grammar {

class Constraint {
 public:
  Constraint(std::shared_ptr<MaskCache> masks, bool drops_first_space);

  // What may come next: text tokens that fit, and the end ids exactly if the text may end here.
  // Nothing at all in a dead end, which the answer then ends in. Valid until the next call of this
  // constraint.
  const TokenMask& mask(std::span<const int32_t> end_ids);
  // False, with nothing changed, for a token that does not fit. A mask knows all of these but one
  // kind, where the schema does not list the names: a token after which a member's name cannot but
  // be one that its object has.
  bool accept(int32_t token);
  // Tokens so far, of an answer that goes on. Errors: INVALID_ARGUMENT for one that does not fit.
  Status replay(std::span<const int32_t> tokens);

  bool can_end() const { return matcher_.can_end(); }
  // The tokens that any continuation begins with, `count_max` at most: each is the only one that
  // its mask allows. They need no sampling, and can be computed as one chunk.
  std::vector<int32_t> forced_tokens(std::span<const int32_t> end_ids, size_t count_max);
  // Why the last mask was empty or a token did not fit, as far as a bound was hit; else ok.
  const Status& failure() const { return mask_failure_.ok() ? matcher_.failure() : mask_failure_; }

 private:
  void make_room();
  // Empty for a token that no text can hold.
  const std::string& text_of(int32_t token) const;

  std::shared_ptr<MaskCache> masks_;
  Matcher matcher_;
  bool drops_first_space_;
  bool is_first_ = true;
  std::vector<Vocabulary::ControlToken> markers_;  // that the grammar knows; few
  TokenMask mask_;
  Status mask_failure_;
};

// What a constraint needs of a grammar, for an answer that a model writes. Threads: any.
// Errors: those of compile_grammar(); RESOURCE_EXHAUSTED for one too ambiguous to begin.
Result<std::shared_ptr<MaskCache>> compile_masks(const GrammarSpec& spec,
                                                 std::shared_ptr<const Vocabulary> vocabulary);

class GrammarCache {
 public:
  // Keeps the last `grammars_max` grammars that were used.
  explicit GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, size_t grammars_max = 16);

  // A constraint at the beginning of an answer, if the grammar is known.
  std::optional<Constraint> find(const GrammarSpec& spec);
  // The same for one that is not, with masks made elsewhere over the same vocabulary.
  Constraint add(const GrammarSpec& spec, std::shared_ptr<MaskCache> masks);
  // Either, with masks made here. Errors: those of compile_masks().
  Result<Constraint> start(const GrammarSpec& spec);

 private:
  struct Entry {
    GrammarSpec spec;
    std::shared_ptr<MaskCache> masks;
  };

  std::shared_ptr<const Vocabulary> vocabulary_;
  const size_t grammars_max_;
  std::list<Entry> entries_;  // the last used one first
};

}  // namespace strata::grammar
