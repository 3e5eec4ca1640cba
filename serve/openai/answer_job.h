// AnswerJob: the answers to one HTTP request, from their start to the last event; ends with them,
// or when the client has gone.
//
// Threads: a sink's functions are called one at a time, from any thread.
#pragma once

#include <memory>
#include <vector>

#include "serve/http/message.h"
#include "serve/model_service.h"
#include "serve/openai/api_error.h"
#include "serve/openai/sampling_fields.h"

namespace strata::serve {

// What becomes of the events: a response in one of the APIs' shapes. `call`: index of the answer.
class AnswerSink {
 public:
  virtual ~AnswerSink() = default;
  virtual void on_started(size_t call, const remote::GenerateStarted& started) = 0;
  virtual void on_prompt(size_t, const coordinator::PromptLogprob&) {}
  virtual void on_token(size_t call, remote::GenerateToken token) = 0;
  virtual void on_finished(size_t call, const remote::GenerateFinished& finished) = 0;
  // All answers have ended; or one failed, and the others were cancelled. Once.
  virtual void on_done() = 0;
  virtual void on_failed(const Status& status, const ErrorContext& context) = 0;
};

// Starts the answers, no more at once than the model has slots. A call whose extras have any
// on_prompt reports to the sink's in its place.
void run_answers(ModelService& service, std::vector<AnswerCall> calls,
                 std::unique_ptr<AnswerSink> sink, std::shared_ptr<HttpReply> reply);

}  // namespace strata::serve
