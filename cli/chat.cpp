#include "cli/chat.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <memory>
#include <optional>

#include "cli/sampling_options.h"
#include "cli/session.h"

namespace strata::cli {
namespace {

struct ChatOptions {
  SessionOptions session;
  remote::GenerateRequest request;
  std::string system;
};

constexpr const char* kHelp =
    "/help   this text\n"
    "/reset  forget the conversation\n"
    "/undo   take the last question and its answer back\n"
    "/quit   leave (or Ctrl-D)\n"
    "Ctrl-C stops an answer; a second one leaves.";

// Lines from standard input, in the terminal's own line editing. A signal wakes the reader.
class LineReader {
 public:
  LineReader() {
    if (::pipe(wake_) != 0) wake_[0] = wake_[1] = -1;
  }
  ~LineReader() {
    ::close(wake_[0]);
    ::close(wake_[1]);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // From any thread.
  void wake() {
    const char byte = 0;
    [[maybe_unused]] const ssize_t written = ::write(wake_[1], &byte, 1);
  }
  // The next line without its end; none at the end of input or after wake().
  std::optional<std::string> next() {
    while (true) {
      const size_t end = held_.find('\n');
      if (end != std::string::npos) {
        std::string line = held_.substr(0, end);
        held_.erase(0, end + 1);
        return line;
      }
      pollfd fds[2] = {{0, POLLIN, 0}, {wake_[0], POLLIN, 0}};
      if (::poll(fds, 2, -1) < 0 && errno != EINTR) return std::nullopt;
      if ((fds[1].revents & POLLIN) != 0) return std::nullopt;
      if ((fds[0].revents & (POLLERR | POLLNVAL)) != 0) return std::nullopt;
      if ((fds[0].revents & (POLLIN | POLLHUP)) == 0) continue;
      char piece[4096];
      const ssize_t count = ::read(0, piece, sizeof(piece));
      if (count <= 0) {
        if (held_.empty()) return std::nullopt;
        held_ += '\n';
        continue;
      }
      held_.append(piece, static_cast<size_t>(count));
    }
  }

 private:
  int wake_[2] = {-1, -1};
  std::string held_;
};

class Conversation {
 public:
  Conversation(const ChatOptions& options, Session& session, Terminal& terminal)
      : options_(options), session_(session), terminal_(terminal) {
    reset();
  }

  void reset() {
    messages_.clear();
    if (!options_.system.empty()) messages_.push_back({"system", options_.system});
  }
  void undo() {
    while (!messages_.empty() && messages_.back().role == "assistant") messages_.pop_back();
    if (!messages_.empty() && messages_.back().role == "user") messages_.pop_back();
  }

  // One turn. What an interrupted answer had said stays in the conversation; a turn that failed
  // leaves no trace.
  Status ask(const std::string& question) {
    messages_.push_back({"user", question});
    remote::GenerateRequest request = options_.request;
    request.prompt = messages_;
    std::string answer;
    Status status = session_.generate(request, [&](const remote::GenerateEvent& event) {
      if (const auto* token = std::get_if<remote::GenerateToken>(&event)) {
        answer += token->text;
        terminal_.answer(token->text);
      }
    });
    terminal_.answer("\n");
    if (!status.ok() && (status.code() != StatusCode::cancelled || answer.empty())) {
      messages_.pop_back();
      return status;
    }
    messages_.push_back({"assistant", answer});
    return ok_status();
  }

 private:
  const ChatOptions& options_;
  Session& session_;
  Terminal& terminal_;
  remote::ChatPrompt messages_;
};

// False to leave.
bool handle_line(const std::string& line, Conversation& conversation, Terminal& terminal) {
  if (line == "/quit" || line == "/exit") return false;
  if (line == "/help") {
    terminal.line(kHelp);
  } else if (line == "/reset") {
    conversation.reset();
    terminal.line(terminal.dim("a new conversation"));
  } else if (line == "/undo") {
    conversation.undo();
    terminal.line(terminal.dim("the last turn is gone"));
  } else if (line.front() == '/') {
    terminal.line(fmt::format("{} is no command; /help lists them", line));
  } else if (const Status status = conversation.ask(line); !status.ok()) {
    if (status.code() == StatusCode::cancelled) {
      terminal.line(terminal.dim("stopped; Ctrl-C again leaves"));
    } else {
      terminal.line("error: " + status.to_string());
    }
  }
  return true;
}

Status run_chat(const ChatOptions& options) {
  Signals signals;
  Terminal terminal;
  const std::unique_ptr<Session> session = TRY(Session::open(options.session, terminal, signals));
  LineReader reader;
  std::atomic<bool> is_answering = false;
  std::atomic<bool> leaving = false;
  // The first Ctrl-C ends an answer; one at the prompt, or a second, leaves.
  std::atomic<bool> stopped_once = false;
  signals.on_signal([&](int) {
    if (is_answering && !stopped_once.exchange(true)) {
      session->cancel();
      return;
    }
    leaving = true;
    session->cancel();
    reader.wake();
  });
  Conversation conversation(options, *session, terminal);
  if (terminal.is_interactive()) terminal.line(terminal.dim("/help lists what else can be typed"));
  while (!leaving) {
    if (terminal.is_interactive()) terminal.answer(terminal.bold("> "));
    const std::optional<std::string> line = reader.next();
    if (!line) break;
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    is_answering = true;
    const bool goes_on = handle_line(*line, conversation, terminal);
    is_answering = false;
    stopped_once = false;
    if (!goes_on) break;
  }
  signals.on_signal({});
  if (terminal.is_interactive()) terminal.answer("\n");
  return ok_status();
}

}  // namespace

void add_chat_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand("chat", "Talk to a model, turn by turn");
  auto options = std::make_shared<ChatOptions>();
  command.add_option("--system", options->system, "A system message before the conversation");
  add_session_options(command, options->session);
  add_sampling_options(command, options->request);
  add_example(command, "strata chat --coordinator 127.0.0.1:50051");
  command.callback([options, &context] { context.run = [options] { return run_chat(*options); }; });
}

}  // namespace strata::cli
