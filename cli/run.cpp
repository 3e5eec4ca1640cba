#include "cli/run.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/sampling_options.h"
#include "cli/session.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;

struct RunOptions {
  SessionOptions session;
  remote::GenerateRequest request;
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
};

struct Answer {
  std::string text;
  std::vector<int32_t> tokens;
  remote::GenerateStarted started;
  remote::GenerateFinished finished;

  double tokens_per_s() const {
    // The first token's time counts as the prompt's.
    if (finished.generated_tokens < 2 || finished.decode_ms <= 0) return 0;
    return (finished.generated_tokens - 1) / finished.decode_ms * 1e3;
  }
};

remote::ChatPrompt chat_prompt(const RunOptions& options) {
  remote::ChatPrompt messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", options.prompt});
  return messages;
}

Status ask(Session& session, const remote::GenerateRequest& request, bool stream,
           const Signals& signals, Terminal& terminal, Answer& answer) {
  return session.generate(request, [&](const remote::GenerateEvent& event) {
    // A signal that came before there was an answer to cancel.
    if (signals.count() > 0) session.cancel();
    if (const auto* started = std::get_if<remote::GenerateStarted>(&event)) {
      answer.started = *started;
    } else if (const auto* token = std::get_if<remote::GenerateToken>(&event)) {
      answer.text += token->text;
      if (token->id >= 0) answer.tokens.push_back(token->id);
      if (stream) terminal.answer(token->text);
    } else {
      answer.finished = std::get<remote::GenerateFinished>(event);
    }
  });
}

void print_summary(const Answer& answer, Terminal& terminal) {
  const remote::GenerateFinished& end = answer.finished;
  std::string text = fmt::format("{} prompt tokens in {:.0f} ms, {} tokens", end.prompt_tokens,
                                 end.prefill_ms, end.generated_tokens);
  if (answer.tokens_per_s() > 0) text += fmt::format(" at {:.1f}/s", answer.tokens_per_s());
  text += fmt::format(", {}, seed {}", end.reason, answer.started.seed);
  terminal.line(terminal.dim(text));
}

std::string to_json(const Answer& answer) {
  const remote::GenerateFinished& end = answer.finished;
  const Json object = {{"text", answer.text},
                       {"tokens", answer.tokens},
                       {"finish_reason", end.reason},
                       {"prompt_tokens", end.prompt_tokens},
                       {"generated_tokens", end.generated_tokens},
                       {"prefill_ms", end.prefill_ms},
                       {"decode_ms", end.decode_ms},
                       {"tokens_per_s", answer.tokens_per_s()},
                       {"seed", answer.started.seed},
                       {"model", answer.started.model}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status run_answer(const RunOptions& options) {
  Signals signals;
  Terminal terminal;
  const std::unique_ptr<Session> session = TRY(Session::open(options.session, terminal, signals));
  signals.on_signal([&session](int) { session->cancel(); });
  if (signals.count() > 0) {
    signals.on_signal({});
    return cancelled("interrupted");
  }
  remote::GenerateRequest request = options.request;
  if (options.raw) {
    request.prompt = options.prompt;
  } else {
    request.prompt = chat_prompt(options);
  }
  Answer answer;
  Status status = ask(*session, request, !options.json, signals, terminal, answer);
  if (status.code() == StatusCode::unimplemented && !options.raw && options.system.empty() &&
      answer.tokens.empty()) {
    // A model without a chat template takes the prompt as it is.
    request.prompt = options.prompt;
    status = ask(*session, request, !options.json, signals, terminal, answer);
  }
  signals.on_signal({});
  if (!options.json && !answer.text.empty() && answer.text.back() != '\n') terminal.answer("\n");
  if (signals.count() > 0 && !status.ok()) return cancelled("interrupted");
  TRY(std::move(status));
  if (options.json) {
    terminal.answer(to_json(answer));
  } else {
    print_summary(answer, terminal);
  }
  return ok_status();
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("run", "Answer one prompt");
  auto options = std::make_shared<RunOptions>();
  command.add_option("-p,--prompt", options->prompt, "The prompt")->required();
  command.add_option("--system", options->system, "A system message before the prompt");
  command.add_flag("--raw", options->raw,
                   "Send the prompt as it is, without the model's chat template");
  add_session_options(command, options->session);
  add_sampling_options(command, options->request);
  add_json_option(command, context);
  add_example(command, "strata run -m model.gguf -p \"Why is the sky blue?\" -n 100");
  command.callback([options, &context] {
    context.run = [options, &context] {
      options->json = context.json;
      return run_answer(*options);
    };
  });
}

}  // namespace strata::cli
