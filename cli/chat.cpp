#include "cli/chat.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <stop_token>

#include "cli/cluster_options.h"
#include "cli/conversation.h"
#include "cli/grammar_options.h"
#include "cli/line_editor.h"
#include "cli/sampling_options.h"
#include "cli/session.h"
#include "cli/signals.h"
#include "runtime/base/human.h"
#include "runtime/base/mutex.h"
#include "runtime/base/utf8.h"

namespace strata::cli {
namespace {

struct ChatOptions {
  SessionOptions session;
  GrammarOptions grammar;
  ToolOptions tools;
  ConversationOptions conversation;
  bool no_history = false;
};

constexpr const char* kHelp =
    "/help   this text\n"
    "/reset  forget the conversation\n"
    "/undo   take the last question and its answer back\n"
    "/quit   leave (or Ctrl-D)\n"
    "Alt-Enter begins a new line of the same question; pasted text is one question.\n"
    "Up and Down walk through earlier questions, Ctrl-R searches them.\n"
    "Ctrl-C stops an answer; a second one leaves.\n"
    "Where the model calls a function, the next line is its result.";

// What a signal means from moment to moment: the first during an answer ends the answer; any other,
// and SIGTERM always, ends the chat. Threads: any.
class Interruptions {
 public:
  // An answer begins: it is to end once the token says so.
  std::stop_token begin_answer() {
    const MutexLock lock(mutex_);
    answer_ = std::stop_source();
    if (leaving_) answer_.request_stop();
    is_answering_ = true;
    return answer_.get_token();
  }
  // False if the chat is to end.
  bool end_answer() {
    const MutexLock lock(mutex_);
    is_answering_ = false;
    return !leaving_;
  }
  // False if only the answer is to end.
  bool take(int signal_number) {
    std::stop_source answer;
    bool leave = false;
    {
      const MutexLock lock(mutex_);
      leave = signal_number == SIGTERM || !is_answering_ || answer_.stop_requested();
      leaving_ = leaving_ || leave;
      answer = answer_;
    }
    answer.request_stop();
    return leave;
  }
  bool leaving() const {
    const MutexLock lock(mutex_);
    return leaving_;
  }

 private:
  mutable Mutex mutex_;
  std::stop_source answer_ STRATA_GUARDED_BY(mutex_);
  bool is_answering_ STRATA_GUARDED_BY(mutex_) = false;
  bool leaving_ STRATA_GUARDED_BY(mutex_) = false;
};

// A note below an answer, for a person.
std::string note_of(const Answer& answer, uint32_t max_tokens) {
  std::string text = answer.speed_text();
  const remote::GenerateFinished& end = answer.finished;
  if (end.reason == "length" && (max_tokens == 0 || end.generated_tokens < max_tokens)) {
    text += fmt::format("; cut off, the context is full at {} tokens: /reset begins anew",
                        human_count(end.prompt_tokens + end.generated_tokens));
  }
  return text;
}

// One line of the person's: a question, or the result of a call that the model has made.
Status answer_to(const std::string& line, const std::stop_token& stop, Conversation& conversation,
                 Answer& answer, bool& has_answer) {
  has_answer = true;
  if (conversation.awaited_call().empty()) return conversation.ask(line, stop, answer);
  has_answer = conversation.take_result(line);
  return has_answer ? conversation.go_on(stop, answer) : ok_status();
}

// False if the question failed.
bool answer_line(const std::string& line, const std::stop_token& stop,
                 const ConversationOptions& options, Conversation& conversation,
                 Terminal& terminal) {
  Answer answer;
  bool has_answer = false;
  Status status = answer_to(line, stop, conversation, answer, has_answer);
  if (!has_answer) return true;
  if (status.code() == StatusCode::cancelled && stop.stop_requested()) {
    terminal.line(terminal.dim("stopped"));
    return true;
  }
  if (status.code() == StatusCode::invalid_argument && !conversation.is_first_turn()) {
    status = status.with_hint(
        "the conversation has grown too long: /reset begins a new one, /undo "
        "takes the last turn back, a larger --ctx holds more");
  }
  if (!status.ok()) {
    terminal.end_line();
    report_error(status, options.json);
  } else if (options.json) {
    terminal.answer(answer.json());
  } else if (terminal.is_interactive()) {
    terminal.line(terminal.dim(note_of(answer, options.request.max_tokens)));
  } else if (answer.finished.reason == "length" && options.request.max_tokens == 0) {
    terminal.line(note_of(answer, options.request.max_tokens));
  }
  return status.ok();
}

// False if the line is no command of the chat's own.
bool handle_command(const std::string& line, Conversation& conversation, Terminal& terminal) {
  const bool is_one_line = line.find('\n') == std::string::npos;
  if (!line.starts_with('/') || !is_one_line) return false;
  if (line == "/help") {
    terminal.line(kHelp);
  } else if (line == "/reset") {
    conversation.reset();
    terminal.line(terminal.dim("a new conversation"));
  } else if (line == "/undo") {
    conversation.undo();
    terminal.line(terminal.dim("the last turn is gone"));
  } else if (!conversation.awaited_call().empty()) {
    return false;  // a result, such as a path
  } else {
    terminal.line(fmt::format("{} is no command; /help lists them", printable(line, 40)));
  }
  return true;
}

// What stands before the cursor where a line is awaited.
std::string prompt_of(const Conversation& conversation, const Terminal& terminal) {
  const std::string call = conversation.awaited_call();
  return terminal.bold(call.empty() ? "> " : "result of " + without_controls(call) + "> ");
}

// `all_answered`: set to false once a question failed.
Status run_chat(const ChatOptions& options, bool& all_answered) {
  const ConversationOptions& turns = options.conversation;
  Signals signals(turns.json);
  Terminal terminal(turns.json);
  const std::unique_ptr<Session> session =
      TRY(Session::open(options.session, terminal, signals.stop_token()));
  const std::unique_ptr<LineReader> reader = make_line_reader(
      {.history_file = options.no_history ? "" : user_state_folder() + "/chat_history",
       .keep_stdout_clean = turns.json});
  Interruptions interruptions;
  const Signals::Handling handling = signals.handle([&](const Signals::Event& event) {
    if (interruptions.take(event.number)) reader->wake();
  });
  Conversation conversation(turns, *session, terminal);
  const bool is_interactive = terminal.is_interactive() && !turns.json;
  if (is_interactive) terminal.line(terminal.dim("/help lists what else can be typed"));
  while (!interruptions.leaving()) {
    const std::optional<std::string> line = reader->next(prompt_of(conversation, terminal));
    if (!line || *line == "/quit" || *line == "/exit") break;
    const bool is_blank = line->find_first_not_of(" \t\r") == std::string::npos;
    if (is_blank && conversation.awaited_call().empty()) continue;
    if (handle_command(*line, conversation, terminal)) continue;
    const std::stop_token stop = interruptions.begin_answer();
    if (!answer_line(*line, stop, turns, conversation, terminal)) all_answered = false;
    if (!interruptions.end_answer()) break;
    if (stop.stop_requested()) signals.forget();
  }
  if (is_interactive) terminal.answer("\n");
  return ok_status();
}

Status check_options(ChatOptions& options) {
  ConversationOptions& turns = options.conversation;
  TRY(check_session_options(options.session));
  turns.request.grammar = TRY(read_answer_grammar(options.grammar));
  turns.chat = TRY(read_tools(options.tools));
  turns.reasoning = options.tools.reasoning;
  return check_together(turns.request.grammar, turns.chat);
}

}  // namespace

void add_chat_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("chat", "Talk to a model, turn by turn");
  auto options = std::make_shared<ChatOptions>();
  add_system_option(command, options->conversation.system);
  add_session_options(command, options->session);
  add_sampling_options(command, options->conversation.request);
  add_grammar_options(command, options->grammar, {});
  add_tool_options(command, options->tools);
  add_json_option(command, context, "Print each answer as one JSON object on a line of its own");
  command.add_flag("--no-history", options->no_history,
                   "Do not keep questions for the Up key of later chats");
  add_example(command, "strata chat --coordinator 127.0.0.1:50051");
  command.callback([options, &context] {
    context.check = [options] { return check_options(*options); };
    context.run = [options, &context] {
      options->conversation.json = context.json;
      bool all_answered = true;
      const Status status = run_chat(*options, all_answered);
      // A person has seen what failed; a script looks at the code.
      if (!all_answered && ::isatty(STDIN_FILENO) == 0) context.exit_code = exit_error;
      return status;
    };
  });
}

}  // namespace strata::cli
