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
  using Json = nlohmann::ordered_json;
  const Json object = {{"text", text},
                       {"message", message()},
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

nlohmann::ordered_json Answer::message() const {
  nlohmann::ordered_json message = {{"role", "assistant"}, {"content", content}};
  if (content.empty() && !calls.empty()) message["content"] = nullptr;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  for (const Call& call : calls) {
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return message;
}

void Answer::take(const AnswerDelta& delta) {
  switch (delta.kind) {
    case AnswerDelta::Kind::reasoning:
      reasoning += delta.text;
      break;
    case AnswerDelta::Kind::content:
      content += delta.text;
      break;
    case AnswerDelta::Kind::call:
      calls.push_back({fmt::format("call{:05}", first_call + calls.size()), delta.text, ""});
      break;
    case AnswerDelta::Kind::arguments:
      if (!calls.empty()) calls.back().arguments += delta.text;
  }
}

Status ask(Session& session, const remote::GenerateRequest& request, AnswerPrinter* printer,
           const std::stop_token& stop, Answer& answer) {
  const auto take_delta = [&](const AnswerDelta& delta) {
    answer.take(delta);
    if (printer != nullptr) printer->take(delta);
  };
  const auto take = [&](const remote::GenerateEvent& event) {
    if (const auto* started = std::get_if<remote::GenerateStarted>(&event)) {
      answer.started = *started;
    } else if (const auto* token = std::get_if<remote::GenerateToken>(&event)) {
      answer.text += token->text;
      if (token->id >= 0) answer.tokens.push_back(token->id);
      for (const AnswerDelta& delta : token->deltas) take_delta(delta);
      if (!answer.started.is_split) {
        take_delta({.kind = AnswerDelta::Kind::content, .text = token->text});
      }
    } else {
      answer.finished = std::get<remote::GenerateFinished>(event);
    }
  };
  return session.generate(request, take, stop);
}

}  // namespace strata::cli
