// Answer: one answer as `run` and `chat` stream, sum up and print it.
//
// Threads: ask() blocks its caller; events come on the session's thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <vector>

#include "backends/remote/client_records.h"
#include "cli/answer_printer.h"
#include "cli/session.h"

namespace strata::cli {

struct Answer {
  struct Call {
    std::string id;  // nine letters and digits, as Mistral's templates want them
    std::string name;
    std::string arguments;  // JSON
  };

  std::string text;  // as the model wrote it
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  size_t first_call = 0;  // number of its first call in a chat: ids are not to come twice
  std::vector<int32_t> tokens;
  remote::GenerateStarted started;
  remote::GenerateFinished finished;  // reason is empty until the answer has ended by itself

  // Of the tokens after the first, whose time counts as the prompt's; 0 if there are none.
  double tokens_per_s() const;
  // "prompt 12 tokens in 35 ms, answer 40 tokens at 81.3 tokens/s".
  std::string speed_text() const;
  // One object on one line.
  std::string json() const;
  // What it says, as a message of OpenAI's API.
  nlohmann::ordered_json message() const;

  void take(const AnswerDelta& delta);
};

// Fills `answer` as it comes; `printer`, if not null, shows it at once. Errors: those of
// Session::generate(); what had come until then stands in `answer`.
Status ask(Session& session, const remote::GenerateRequest& request, AnswerPrinter* printer,
           const std::stop_token& stop, Answer& answer);

}  // namespace strata::cli
