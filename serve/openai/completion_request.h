// A body of /v1/completions, read and checked before anything is computed.
//
// Threads: free functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/model_service.h"
#include "serve/openai/sampling_fields.h"

namespace strata::serve {

struct CompletionRequest {
  struct Prompt {
    std::vector<int32_t> ids;
    std::string text;  // for echo
  };
  std::vector<Prompt> prompts;
  std::vector<AnswerCall> calls;  // `generated` for each prompt, prompt by prompt
  uint32_t generated = 1;         // answers for each prompt
  uint32_t choices = 1;           // of them, those that are given out: the most likely
  bool stream = false;
  bool include_usage = false;
  bool echo = false;
  std::optional<int32_t> logprobs;  // alternatives for each token
  std::string model;
};

// Errors: INVALID_ARGUMENT with the field in `param`; NOT_FOUND for a model that is a path.
Result<CompletionRequest> read_completion_request(const Json& body, const ModelService& service,
                                                  const Tokenizer& tokenizer, std::string& param);

// A JSON list of token ids. Errors: INVALID_ARGUMENT.
Result<std::vector<int32_t>> read_token_ids(const Fields& fields, std::string_view name,
                                            const Json& list, const Vocab& vocab);

}  // namespace strata::serve
