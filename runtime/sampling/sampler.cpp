#include "runtime/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/base/check.h"
#include "runtime/base/float_scan.h"
#include "runtime/base/portable_math.h"
#include "runtime/sampling/counter_rng.h"

namespace strata {
namespace {

Status check_finite(std::span<const float> logits) {
  if (all_finite(logits)) return ok_status();
  size_t i = 0;
  while (all_finite(logits.subspan(i, 1))) ++i;
  return data_loss(
      fmt::format("non-finite logits: {} for token {} of {}", logits[i], i, logits.size()),
      "check the model file with `strata inspect`; a damaged tensor gives such values");
}

// The best of the logits as they are.
bool takes_best_logit(const SamplingParams& params) {
  return (params.temperature == 0.0F || params.top_k == 1) && !looks_back(params) &&
         params.logit_bias.empty();
}

// log(sum of e^logit). `weights` is for its memory.
double log_sum_exp(std::span<const float> logits, std::vector<double>& weights) {
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  weights.resize(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) weights[i] = static_cast<double>(logits[i]) - best;
  portable_exp_of_nonpositive(weights);
  double sum = 0.0;
  for (const double weight : weights) sum += weight;
  return best + portable_log(sum);
}

// `ids` is for its memory.
std::vector<TokenLogprob> best_logprobs(std::span<const float> logits, int32_t count,
                                        double normaliser, std::vector<int32_t>& ids) {
  const size_t kept = std::min(static_cast<size_t>(std::max(count, 0)), logits.size());
  ids.resize(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + static_cast<ptrdiff_t>(kept), ids.end(),
                    [logits](int32_t a, int32_t b) {
                      const float left = logits[static_cast<size_t>(a)];
                      const float right = logits[static_cast<size_t>(b)];
                      return left != right ? left > right : a < b;
                    });
  std::vector<TokenLogprob> top(kept);
  for (size_t i = 0; i < kept; ++i) {
    const double logit = static_cast<double>(logits[static_cast<size_t>(ids[i])]);
    top[i] = {ids[i], static_cast<float>(logit - normaliser)};
  }
  return top;
}

}  // namespace

float logprob_of(std::span<const float> logits, int32_t id) {
  STRATA_CHECK(id >= 0 && static_cast<size_t>(id) < logits.size(), "token id outside the logits");
  std::vector<double> weights;
  return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) -
                            log_sum_exp(logits, weights));
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int32_t count) {
  if (logits.empty()) return {};
  std::vector<double> weights;
  std::vector<int32_t> ids;
  return best_logprobs(logits, count, log_sum_exp(logits, weights), ids);
}

void Sampler::list_with_top_k(const SamplingParams& params) {
  list_best(scores_, params.top_k, candidates_);
  set_weights(candidates_, static_cast<double>(params.temperature));
  if (params.top_p >= 1.0F) return;
  keep_top_p(candidates_, static_cast<double>(params.top_p) * sum_of_weights(candidates_));
}

void Sampler::list_without_top_k(const SamplingParams& params) {
  const double sum = compute_weights(scores_, static_cast<double>(params.temperature), weights_);
  if (params.top_p >= 1.0F) {
    list_heavy(scores_, weights_, 0.0, candidates_);
    return;
  }
  // Ids below this weight hold less than 1 - top_p together, even if all are just below it: those
  // above suffice, and there are few of them to sort. Half, so that rounding does not matter.
  const double mass = static_cast<double>(params.top_p);
  const double least = 0.5 * (1.0 - mass) * sum / static_cast<double>(scores_.size());
  list_heavy(scores_, weights_, least, candidates_);
  keep_top_p(candidates_, mass * sum);
}

Result<int32_t> Sampler::choose(const SamplingParams& params, std::span<const int32_t> history,
                                uint32_t position) {
  apply_logit_bias(scores_, params.logit_bias);
  TRY(apply_penalties(scores_, history, params, counts_));
  const int32_t best = TRY(best_id(scores_));
  if (params.temperature == 0.0F || params.top_k == 1) return best;

  if (params.top_k > 0) {
    list_with_top_k(params);
  } else {
    list_without_top_k(params);
  }
  if (params.min_p > 0.0F) keep_min_p(candidates_, static_cast<double>(params.min_p));
  const double u =
      uniform_at({.seed = params.seed, .position = position, .choice = params.choice, .draw = 0});
  return draw(candidates_, u);
}

Result<SampledToken> Sampler::sample(std::span<const float> logits, const SamplingParams& params,
                                     std::span<const int32_t> history, int64_t position,
                                     const TokenMask* mask) {
  STRATA_CHECK(!logits.empty(), "sampling needs logits");
  if (position < 0 || position > std::numeric_limits<uint32_t>::max()) {
    return invalid_argument(fmt::format("position {} is outside 0 to 4294967295", position));
  }
  TRY(check_finite(logits));
  SampledToken token;
  if (mask == nullptr && takes_best_logit(params)) {
    token.id = static_cast<int32_t>(index_of_largest(logits));
  } else {
    scores_.assign(logits.begin(), logits.end());
    if (mask != nullptr) mask->apply(scores_);
    token.id = TRY(choose(params, history, static_cast<uint32_t>(position)));
  }
  if (params.logprobs || params.top_logprobs > 0) {
    const double normaliser = log_sum_exp(logits, weights_);
    const double logit = static_cast<double>(logits[static_cast<size_t>(token.id)]);
    token.logprob = static_cast<float>(logit - normaliser);
    token.top = best_logprobs(logits, params.top_logprobs, normaliser, ids_);
  }
  return token;
}

}  // namespace strata
