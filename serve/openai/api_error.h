// How a Status becomes an HTTP error in the shape of OpenAI's API.
//
// Threads: free functions, any thread.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "serve/http/message.h"

namespace strata::serve {

struct ErrorContext {
  std::string param;           // the field that is at fault; empty: as the message says
  uint32_t prompt_tokens = 0;  // of the request, if it was tokenized
  uint32_t context = 0;        // that it had to fit into; 0: not known
  bool wants_answer = true;    // a position is needed for it
};

// Status number, body, and Retry-After where trying again helps.
HttpResponse api_error(const Status& status, const ErrorContext& context = {});
// The number alone.
int http_status(StatusCode code);

}  // namespace strata::serve
