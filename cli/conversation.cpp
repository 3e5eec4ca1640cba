#include "cli/conversation.h"

#include <fmt/format.h>

#include "runtime/base/json_text.h"

namespace strata::cli {

using OrderedJson = nlohmann::ordered_json;

Conversation::Conversation(const ConversationOptions& options, Session& session, Terminal& terminal)
    : options_(options), session_(session), terminal_(terminal) {
  reset();
}

void Conversation::reset() {
  messages_ = OrderedJson::array();
  awaited_.clear();
  if (!options_.system.empty()) {
    messages_.push_back({{"role", "system"}, {"content", options_.system}});
  }
}

bool Conversation::is_first_turn() const {
  return messages_.empty() || messages_.back()["role"] == "system";
}

void Conversation::undo() {
  awaited_.clear();
  while (!is_first_turn()) {
    const bool is_question = messages_.back()["role"] == "user";
    messages_.erase(messages_.size() - 1);
    if (is_question) return;
  }
}

Status Conversation::ask(const std::string& question, const std::stop_token& stop, Answer& answer) {
  messages_.push_back({{"role", "user"}, {"content", question}});
  return go_on(stop, answer);
}

Status Conversation::go_on(const std::stop_token& stop, Answer& answer) {
  remote::GenerateRequest request = options_.request;
  remote::ChatPrompt chat = options_.chat;
  chat.messages = dump_json(messages_);
  // A call that had to be made was made: with its result the model may answer.
  const bool has_result = messages_.back()["role"] == "tool";
  if (has_result && !chat.tool_choice.empty()) chat.tool_choice = "\"auto\"";
  request.prompt = std::move(chat);
  answer.first_call = call_count_;
  AnswerPrinter printer(terminal_, options_.reasoning);
  const Status status =
      cli::ask(session_, request, options_.json ? nullptr : &printer, stop, answer);
  if (!options_.json) {
    printer.finish(!answer.calls.empty());
    if (answer.calls.empty() && (status.ok() || !answer.text.empty())) terminal_.answer("\n");
  }
  if (!status.ok() && (status.code() != StatusCode::cancelled || answer.text.empty())) {
    undo();
    return status;
  }
  if (!status.ok()) answer.calls.clear();  // broken off: nobody waits for their results
  // Nor for that of a call which was cut off, and templates take no half arguments.
  Answer kept = answer;
  std::erase_if(kept.calls,
                [](const Answer::Call& call) { return !OrderedJson::accept(call.arguments); });
  OrderedJson message = kept.message();
  message.erase("reasoning_content");  // models are trained on chats without what they thought
  messages_.push_back(std::move(message));
  awaited_.assign(kept.calls.begin(), kept.calls.end());
  call_count_ += answer.calls.size();
  return status;
}

std::string Conversation::awaited_call() const {
  if (awaited_.empty()) return {};
  return fmt::format("{}({})", awaited_.front().name, awaited_.front().arguments);
}

bool Conversation::take_result(const std::string& result) {
  messages_.push_back({{"role", "tool"},
                       {"tool_call_id", awaited_.front().id},
                       {"name", awaited_.front().name},
                       {"content", result}});
  awaited_.pop_front();
  return awaited_.empty();
}

}  // namespace strata::cli
