// How the next token of a sequence is chosen, and the check of every field's range. Travels with
// the sequence to the tail of the pipeline.
//
// The names are those of the OpenAI API and of its common extensions, so that an error names what
// the client wrote. Threads: plain value.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/sampling/grammar_spec.h"

namespace strata {

struct SamplingParams {
  float temperature = 0.7f;  // 0: greedy, the arg-max with ties by lower id
  int32_t top_k = 0;         // keep the k most likely; 0: all
  float top_p = 0.95f;       // keep the fewest most likely with this much probability; 1: all
  float min_p = 0.0f;        // keep those at least min_p times as likely as the best; 0: all
  float repetition_penalty = 1.0f;  // 1: off; divides positive, multiplies negative logits
  float frequency_penalty = 0.0f;   // subtracted once per occurrence
  float presence_penalty = 0.0f;    // subtracted once if the token occurred
  int32_t penalty_last_n = 64;      // tokens looked back on by the penalties; -1: all
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, bias; -100 and less bans
  uint64_t seed = 0;
  uint32_t choice = 0;       // index of the answer among the request's n
  bool logprobs = false;     // report the logprob of each token
  int32_t top_logprobs = 0;  // how many alternatives to report with each token
  GrammarSpec grammar;       // what the answer must look like; kind none: anything
};

// Whether the settings read the tokens so far: sampling then needs them.
bool looks_back(const SamplingParams& params);

// The most alternatives that one token may report.
inline constexpr int32_t kTopLogprobsMax = 1024;

// Errors: INVALID_ARGUMENT with the field, its value and its range. `vocab_size` bounds the ids of
// logit_bias and top_logprobs. Of a grammar only the size is looked at: compiling it tells more.
Status validate(const SamplingParams& params, int32_t vocab_size);

}  // namespace strata
