#include "cli/answer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/json_line.h"
#include "runtime/base/human.h"

namespace strata::cli {

double Answer::tokens_per_s() const {
  if (finished.generated_tokens < 2 || finished.decode_ms <= 0) return 0;
  return (finished.generated_tokens - 1) / finished.decode_ms * 1e3;
}

std::string Answer::speed_text() const {
  const auto count = [](uint32_t n) {
    return fmt::format("{} token{}", human_count(n), n == 1 ? "" : "s");
  };
  std::string line = fmt::format("prompt {} in {:.0f} ms, answer {}", count(finished.prompt_tokens),
                                 finished.prefill_ms, count(finished.generated_tokens));
  if (tokens_per_s() > 0) line += fmt::format(" at {:.1f} tokens/s", tokens_per_s());
  return line;
}

std::string Answer::json() const {
  using Json = nlohmann::json;
  const Json object = {{"text", text},
                       {"tokens", tokens},
                       {"finish_reason", finished.reason},
                       {"prompt_tokens", finished.prompt_tokens},
                       {"generated_tokens", finished.generated_tokens},
                       {"prefill_ms", finished.prefill_ms},
                       {"decode_ms", finished.decode_ms},
                       {"tokens_per_s", tokens_per_s()},
                       {"seed", started.seed},
                       {"model", started.model}};
  return json_line(object);
}

Status ask(Session& session, const remote::GenerateRequest& request, bool stream,
           const std::stop_token& stop, Terminal& terminal, Answer& answer) {
  const auto take = [&](const remote::GenerateEvent& event) {
    if (const auto* started = std::get_if<remote::GenerateStarted>(&event)) {
      answer.started = *started;
    } else if (const auto* token = std::get_if<remote::GenerateToken>(&event)) {
      answer.text += token->text;
      if (token->id >= 0) answer.tokens.push_back(token->id);
      if (stream) terminal.stream(token->text);
    } else {
      answer.finished = std::get<remote::GenerateFinished>(event);
    }
  };
  return session.generate(request, take, stop);
}

}  // namespace strata::cli
