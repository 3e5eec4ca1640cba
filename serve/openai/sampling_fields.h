// What chat and plain completions have in common: sampling, limits, stop strings, grammar.
//
// Threads: free functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/generator.h"
#include "serve/openai/fields.h"

namespace strata::serve {

// One answer to generate.
struct AnswerCall {
  remote::GenerateRequest request;
  coordinator::GenerateExtras extras;
};

// How many answers one request may have.
inline constexpr int64_t kChoicesMax = 128;

// Reads sampling settings, stop strings, logit_bias, grammar, seed and the token limit into `call`.
// `least_tokens`: what max_tokens may be at least. `tokenizer`: for biases of texts.
// Errors: INVALID_ARGUMENT naming the field.
Status read_common_fields(const Fields& fields, int64_t least_tokens, const Tokenizer& tokenizer,
                          AnswerCall& call);

// response_format and json_schema. Errors: INVALID_ARGUMENT naming the field.
Status read_response_format(const Fields& fields, AnswerCall& call);

}  // namespace strata::serve
