// From a row of logits to a token. Runs on the tail stage and in `strata run`.
//
// The chain, in this order: the grammar's mask, logit_bias, penalties, then for temperature 0 the
// best token, else top_k, temperature, top_p, min_p (over the distribution at that temperature) and
// one draw. The result is a function of the arguments alone: a Sampler keeps buffers and no state,
// so any stage can go on with a sequence from (params, tokens so far). No libm function is used,
// sums are in double in ascending id order, equals go to the lower id: equal logits give equal
// tokens on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/sampling/filters.h"
#include "runtime/sampling/sampling_params.h"
#include "runtime/sampling/token_mask.h"

namespace strata {

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural logarithm, always finite
};

struct SampledToken {
  int32_t id = -1;
  // Of the model's own distribution, before bias, penalties and temperature, so that a value is
  // finite and does not change with the sampling settings. 0 and empty unless asked for.
  float logprob = 0.0F;
  std::vector<TokenLogprob> top;  // most likely first, params.top_logprobs many
};

// Threads: externally synchronised (it owns scratch buffers); one per thread.
class Sampler {
 public:
  // `logits`: F32 {n_vocab}. `history`: the tokens of the sequence so far, prompt included, oldest
  // first. `position`: that of the new token, so history.size() unless the history was cut.
  // `mask`: the tokens that the grammar allows; null: all.
  // Requires: params passed validate(params, n_vocab).
  // Errors: DATA_LOSS "non-finite logits" (a broken model or stage), FAILED_PRECONDITION if
  // mask and logit_bias ban every token, INVALID_ARGUMENT for an id outside the vocabulary in
  // `history` or a position outside 32 bits.
  Result<SampledToken> sample(std::span<const float> logits, const SamplingParams& params,
                              std::span<const int32_t> history, int64_t position,
                              const TokenMask* mask = nullptr);

 private:
  void list_with_top_k(const SamplingParams& params);
  void list_without_top_k(const SamplingParams& params);
  Result<int32_t> choose(const SamplingParams& params, std::span<const int32_t> history,
                         uint32_t position);

  std::vector<double> scores_;
  std::vector<double> weights_;
  std::vector<Candidate> candidates_;
  std::vector<int32_t> counts_;  // {n_vocab}: see apply_penalties()
  std::vector<int32_t> ids_;
};

// log-softmax of `logits` at `id`, and the `count` most likely, ties by lower id: what `eval --top`
// and the APIs report. Requires: finite logits, id in range.
float logprob_of(std::span<const float> logits, int32_t id);
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count);

}  // namespace strata
