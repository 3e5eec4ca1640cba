// Answers as /v1/completions gives them, with OpenAI's older shape of log-probabilities.
//
// Threads: as AnswerSink.
#pragma once

#include <memory>

#include "serve/openai/answer_job.h"
#include "serve/openai/completion_request.h"

namespace strata::serve {

std::unique_ptr<AnswerSink> make_completion_sink(CompletionRequest request,
                                                 const Tokenizer& tokenizer,
                                                 std::shared_ptr<HttpReply> reply);

}  // namespace strata::serve
