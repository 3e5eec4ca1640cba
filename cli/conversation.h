// Conversation: the messages of a chat, and its next turn.
//
// Where the model calls functions, the conversation waits for their results, one after the other,
// before it goes on.
//
// Threads: externally synchronised.
#pragma once

#include <deque>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>

#include "cli/answer.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "cli/tool_options.h"

namespace strata::cli {

struct ConversationOptions {
  remote::GenerateRequest request;  // without a prompt
  remote::ChatPrompt chat;          // without messages
  std::string system;
  ShowReasoning reasoning = ShowReasoning::on_terminal;
  bool json = false;  // answers are not shown as they come
};

class Conversation {
 public:
  // None of these is owned.
  Conversation(const ConversationOptions& options, Session& session, Terminal& terminal);

  void reset();
  bool is_first_turn() const;
  // Takes the last question and everything after it back.
  void undo();

  // One turn. What an interrupted answer had said stays in the conversation; a turn that failed
  // leaves no trace.
  Status ask(const std::string& question, const std::stop_token& stop, Answer& answer);

  // The call whose result is due, "get_weather({"city": "Paris"})"; empty if none is.
  std::string awaited_call() const;
  // Takes it. The answer goes on once no call is left: true then, and go_on() is due.
  bool take_result(const std::string& result);
  Status go_on(const std::stop_token& stop, Answer& answer);

 private:
  const ConversationOptions& options_;
  Session& session_;
  Terminal& terminal_;
  nlohmann::ordered_json messages_;
  std::deque<Answer::Call> awaited_;  // calls whose results are due
  size_t call_count_ = 0;
};

}  // namespace strata::cli
