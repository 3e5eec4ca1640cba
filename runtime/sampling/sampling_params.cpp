#include "runtime/sampling/sampling_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string_view>

namespace strata {
namespace {

// Written so that NaN is outside every range.
Status check_range(std::string_view field, float value, float low, float high) {
  if (value >= low && value <= high) return ok_status();
  return invalid_argument(fmt::format("{} is {}, outside {} to {}", field, value, low, high));
}

Status check_range(std::string_view field, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return ok_status();
  return invalid_argument(fmt::format("{} is {}, outside {} to {}", field, value, low, high));
}

}  // namespace

bool looks_back(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.frequency_penalty != 0.0F ||
         params.presence_penalty != 0.0F || params.grammar.kind != GrammarSpec::Kind::none;
}

Status validate(const SamplingParams& params, int32_t vocab_size) {
  constexpr int32_t kIntMax = std::numeric_limits<int32_t>::max();
  TRY(check_range("temperature", params.temperature, 0.0F, 100.0F));
  TRY(check_range("top_k", params.top_k, 0, kIntMax));
  TRY(check_range("top_p", params.top_p, 0.0F, 1.0F));
  TRY(check_range("min_p", params.min_p, 0.0F, 1.0F));
  TRY(check_range("repetition_penalty", params.repetition_penalty, 0.01F, 100.0F));
  TRY(check_range("frequency_penalty", params.frequency_penalty, -100.0F, 100.0F));
  TRY(check_range("presence_penalty", params.presence_penalty, -100.0F, 100.0F));
  TRY(check_range("penalty_last_n", params.penalty_last_n, -1, kIntMax));
  TRY(check_range("top_logprobs", params.top_logprobs, 0, std::min(kTopLogprobsMax, vocab_size)));
  if (params.grammar.text.size() > kGrammarBytesMax) {
    return invalid_argument(fmt::format("the {} has {} bytes, at most {} are supported",
                                        grammar_kind_name(params.grammar.kind),
                                        params.grammar.text.size(), kGrammarBytesMax));
  }
  if (params.logit_bias.size() > static_cast<size_t>(std::max(vocab_size, 0))) {
    return invalid_argument(fmt::format("logit_bias has {} entries, and the vocabulary {} tokens",
                                        params.logit_bias.size(), vocab_size),
                            "name each token once");
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return invalid_argument(
          fmt::format("logit_bias names token {}, outside 0 to {}", id, vocab_size - 1));
    }
    const bool banned = bias == -std::numeric_limits<float>::infinity();
    if (!banned) {
      TRY(check_range(fmt::format("logit_bias of token {}", id), bias, -100.0F, 100.0F));
    }
  }
  return ok_status();
}

}  // namespace strata
