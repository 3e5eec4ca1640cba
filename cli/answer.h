// Answer: one answer as `run` and `chat` stream, sum up and print it.
//
// Threads: ask() blocks its caller; events come on the session's thread.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/remote/client_records.h"
#include "cli/session.h"
#include "cli/terminal.h"

namespace strata::cli {

struct Answer {
  std::string text;
  std::vector<int32_t> tokens;
  remote::GenerateStarted started;
  remote::GenerateFinished finished;  // reason is empty until the answer has ended by itself

  // Of the tokens after the first, whose time counts as the prompt's; 0 if there are none.
  double tokens_per_s() const;
  // "prompt 12 tokens in 35 ms, answer 40 tokens at 81.3 tokens/s".
  std::string speed_text() const;
  // One object on one line.
  std::string json() const;
};

// Fills `answer` as it comes, and with `stream` prints its text at once. Errors: those of
// Session::generate(); what had come until then stands in `answer`.
Status ask(Session& session, const remote::GenerateRequest& request, bool stream,
           const std::stop_token& stop, Terminal& terminal, Answer& answer);

}  // namespace strata::cli
