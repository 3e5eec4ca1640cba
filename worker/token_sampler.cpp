#include "worker/token_sampler.h"

#include <algorithm>

namespace strata::worker {
namespace {

bool has_grammar(const OpenSequence& sequence) {
  return sequence.sampling.grammar.kind != GrammarSpec::Kind::none;
}

// The only token that may come, if nothing else is asked of the sampler; else -1. A bias may ban
// even that one, and the sampler says so.
int32_t forced_token(const TokenMask& mask, const SamplingParams& params) {
  if (params.logprobs || params.top_logprobs > 0 || !params.logit_bias.empty()) return -1;
  return mask.count() == 1 ? mask.first() : -1;
}

}  // namespace

TokenSampler::TokenSampler(std::shared_ptr<const GgufFile> tokenizer_file)
    : grammars_(std::move(tokenizer_file)) {}

void TokenSampler::open(const OpenSequence& sequence) {
  if (has_grammar(sequence)) grammars_.prepare(sequence.sampling.grammar);
}

Result<TokenSampler::Choice> TokenSampler::sample(Slot& slot, std::span<const float> logits,
                                                  uint32_t position) {
  if (!has_grammar(slot.sequence)) {
    SampledToken token =
        TRY(sampler_.sample(logits, slot.sequence.sampling, slot.history, position));
    return Choice{.token = std::move(token)};
  }
  if (!slot.constraint && !TRY(begin_grammar(slot))) {
    return Choice{.token = {}, .end = SequenceEnd::not_ready};
  }
  return sample_constrained(slot, logits, position);
}

// Catches up with the answer so far. False if the grammar is still being compiled.
Result<bool> TokenSampler::begin_grammar(Slot& slot) {
  std::optional<grammar::Constraint> constraint =
      TRY(grammars_.start(slot.sequence.sampling.grammar));
  if (!constraint) return false;
  // At the first sample there is nothing but what the record brought, in either list.
  TRY(constraint->replay(std::span(slot.history).last(slot.sequence.answer_tokens)));
  slot.constraint = std::move(constraint);
  return true;
}

Result<TokenSampler::Choice> TokenSampler::sample_constrained(Slot& slot,
                                                              std::span<const float> logits,
                                                              uint32_t position) {
  // Beyond what a mask knows: names that the object already has.
  constexpr int kTriesMax = 1000;
  grammar::Constraint& constraint = *slot.constraint;
  const SamplingParams& params = slot.sequence.sampling;
  const std::vector<int32_t>& ends = slot.sequence.end_ids;
  TokenMask mask = constraint.mask(ends);
  for (int i = 0; i < kTriesMax; ++i) {
    if (mask.count() == 0) break;
    SampledToken token{.id = forced_token(mask, params), .logprob = 0, .top = {}};
    if (token.id < 0) {
      token = TRY(sampler_.sample(logits, params, slot.history, position, &mask));
    }
    const bool is_end = std::find(ends.begin(), ends.end(), token.id) != ends.end();
    if (is_end || constraint.accept(token.id)) return Choice{.token = std::move(token)};
    TRY(Status(constraint.failure()));
    mask.forbid(token.id);
  }
  TRY(Status(constraint.failure()));
  if (!constraint.can_end()) {
    return failed_precondition("no token continues the answer as its grammar asks for",
                               "does the grammar have an end from everywhere, in this vocabulary?");
  }
  return Choice{.token = {}, .end = SequenceEnd::end_token};
}

}  // namespace strata::worker
