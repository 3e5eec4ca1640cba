#include "cli/run.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/answer.h"
#include "cli/grammar_options.h"
#include "cli/sampling_options.h"
#include "cli/session.h"
#include "cli/signals.h"
#include "cli/tool_options.h"
#include "runtime/text/chat_template.h"

namespace strata::cli {
namespace {

struct RunOptions {
  SessionOptions session;
  remote::GenerateRequest request;
  GrammarOptions grammar;
  ToolOptions tools;
  remote::ChatPrompt chat;  // the tools; messages come later
  std::string prompt;
  std::string system;
  bool raw = false;
  bool json = false;
};

remote::ChatPrompt chat_prompt(const RunOptions& options) {
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back({"system", options.system});
  messages.push_back({"user", options.prompt});
  remote::ChatPrompt chat = options.chat;
  chat.messages = messages_json(messages);
  return chat;
}

Status check_options(RunOptions& options) {
  TRY(check_session_options(options.session));
  options.request.grammar = TRY(read_answer_grammar(options.grammar));
  options.chat = TRY(read_tools(options.tools));
  if (options.raw && !options.chat.tools.empty()) {
    return invalid_argument("--tools needs the model's chat template, and --raw goes without it");
  }
  return check_together(options.request.grammar, options.chat);
}

std::string summary(const Answer& answer) {
  const std::string& reason = answer.finished.reason;
  return fmt::format("{}, {}, seed {}", answer.speed_text(),
                     reason == "length" ? "ended by its length" : "ended by the model",
                     answer.started.seed);
}

Status run_answer(const RunOptions& options) {
  const Signals signals(options.json);
  const std::stop_token stop = signals.stop_token();
  Terminal terminal(options.json);
  const std::unique_ptr<Session> session = TRY(Session::open(options.session, terminal, stop));
  remote::GenerateRequest request = options.request;
  if (options.raw) {
    request.prompt = options.prompt;
  } else {
    request.prompt = chat_prompt(options);
  }
  AnswerPrinter printer(terminal, options.tools.reasoning);
  AnswerPrinter* const shown = options.json ? nullptr : &printer;
  Answer answer;
  Status status = ask(*session, request, shown, stop, answer);
  const bool needs_template = !options.system.empty() || !options.chat.tools.empty();
  if (status.code() == StatusCode::unimplemented && !options.raw && !needs_template &&
      answer.tokens.empty()) {
    // A model without a chat template takes the prompt as it is.
    request.prompt = options.prompt;
    status = ask(*session, request, shown, stop, answer);
  }
  if (!options.json) printer.finish(true);
  if (stop.stop_requested() && !status.ok()) return cancelled("interrupted");
  TRY(std::move(status));
  if (options.json) {
    terminal.answer(answer.json());
  } else {
    terminal.line(terminal.dim(summary(answer)));
  }
  return ok_status();
}

}  // namespace

void add_run_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("run", "Answer one prompt");
  auto options = std::make_shared<RunOptions>();
  command.add_option("-p,--prompt", options->prompt, "The prompt")
      ->required()
      ->type_name("TEXT")
      ->group("Prompt");
  add_system_option(command, options->system);
  command
      .add_flag("--raw", options->raw,
                "Send the prompt as it is, without the model's chat template")
      ->group("Prompt");
  add_session_options(command, options->session);
  add_sampling_options(command, options->request);
  add_grammar_options(command, options->grammar, {});
  add_tool_options(command, options->tools);
  add_json_option(command, context, "Print the whole answer as one JSON object at its end");
  add_example(command, "strata run -m model.gguf -p \"Why is the sky blue?\" -n 100");
  command.callback([options, &context] {
    context.check = [options] { return check_options(*options); };
    context.run = [options, &context] {
      options->json = context.json;
      return run_answer(*options);
    };
  });
}

}  // namespace strata::cli
