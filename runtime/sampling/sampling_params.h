// How the next token of a sequence is chosen; travels with the sequence to the tail of the
// pipeline.
//
// The names are those of the OpenAI API and of its common extensions. Threads: plain value.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace strata {

struct SamplingParams {
  float temperature = 0.7f;         // 0: greedy, the arg-max with ties by lower id
  int32_t top_k = 0;                // 0: off
  float top_p = 0.95f;              // 1: off
  float min_p = 0.0f;               // 0: off
  float repetition_penalty = 1.0f;  // 1: off; divides positive, multiplies negative logits
  float frequency_penalty = 0.0f;   // subtracted once per occurrence
  float presence_penalty = 0.0f;    // subtracted once if the token occurred
  int32_t penalty_last_n = 64;      // tokens looked back on by the penalties; -1: all
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, bias; -100 and less bans
  uint64_t seed = 0;
  uint32_t choice = 0;       // index of the answer among the request's n
  int32_t top_logprobs = 0;  // how many alternatives to report with each token
};

}  // namespace strata
