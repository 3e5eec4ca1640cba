// Answers as /v1/chat/completions gives them: one response, or a stream of chunks.
//
// Threads: as AnswerSink.
#pragma once

#include <memory>

#include "serve/openai/answer_job.h"
#include "serve/openai/chat_request.h"

namespace strata::serve {

std::unique_ptr<AnswerSink> make_chat_sink(const ChatRequest& request, const Tokenizer& tokenizer,
                                           std::shared_ptr<HttpReply> reply);

// {"prompt_tokens": ..., ...} for answers to one prompt.
Json usage_json(uint64_t prompt_tokens, uint64_t answer_tokens);
// llama.cpp's "timings".
Json timings_json(const remote::GenerateFinished& finished);
// "data: {...}\n\n"
std::string sse_event(const Json& data);
// A stream's error event, or the whole response if nothing was streamed yet.
void send_failure(HttpReply& reply, const Status& status, const ErrorContext& context);
// Seconds since 1970.
int64_t unix_time();

}  // namespace strata::serve
