// A body of /v1/chat/completions, read and checked before anything is computed.
//
// Threads: free functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "serve/model_service.h"
#include "serve/openai/sampling_fields.h"

namespace strata::serve {

struct ChatRequest {
  AnswerCall call;  // of the first choice
  uint32_t choices = 1;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool parallel_calls = true;
  std::string model;  // as the client calls it
};

// Errors: INVALID_ARGUMENT, with the field in `param`; NOT_FOUND for a model that is a path;
// UNIMPLEMENTED for parts that are no text.
Result<ChatRequest> read_chat_request(const Json& body, const ModelService& service,
                                      const Tokenizer& tokenizer, std::string& param);

// messages, tools, tool_choice and what goes with the template. Errors: as above.
Status read_conversation(const Fields& fields, AnswerCall& call);

// The name in "model": any, since there is one model, but none that looks like a path.
// Errors: NOT_FOUND.
Result<std::string> read_model_name(const Fields& fields, const ModelService& service);

// stream and stream_options. Errors: INVALID_ARGUMENT.
Status read_stream(const Fields& fields, bool& stream, bool& include_usage);

// The request's calls, one for each choice.
std::vector<AnswerCall> calls_for(const AnswerCall& call, uint32_t choices);

}  // namespace strata::serve
