#include "runtime/text/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/base/utf8.h"

namespace strata {
namespace {

using Json = nlohmann::ordered_json;

Result<Json> parse_messages(std::string_view text) {
  TRY(check_nesting(text, "messages"));
  Json messages = Json::parse(text, nullptr, false);
  if (messages.is_discarded()) return invalid_argument("messages are no JSON");
  if (!messages.is_array()) {
    return invalid_argument(
        fmt::format("messages is a JSON {}, must be a list", messages.type_name()));
  }
  if (messages.empty()) {
    return invalid_argument("messages is empty, a conversation needs at least one");
  }
  return messages;
}

class MessageForm {
 public:
  MessageForm(const ChatTraits& traits, std::string_view source)
      : traits_(traits), knows_developer_(source.find("developer") != std::string_view::npos) {}

  bool changed() const { return changed_; }
  Status apply(Json& message, size_t index);
  Status merge_system(Json& messages);
  void write_tools_as_text(Json& messages);

 private:
  Status apply_role(Json& message, size_t index);
  Status apply_content(Json& message, size_t index);
  // The text of a list of parts.
  Result<std::string> text_of(const Json& parts, size_t index) const;
  void apply_tool_calls(Json& message);

  const ChatTraits& traits_;
  bool knows_developer_;
  bool changed_ = false;
};

Status MessageForm::apply(Json& message, size_t index) {
  if (!message.is_object()) {
    return invalid_argument(
        fmt::format("messages[{}] is a JSON {}, must be an object", index, message.type_name()));
  }
  TRY(apply_role(message, index));
  TRY(apply_content(message, index));
  apply_tool_calls(message);
  return ok_status();
}

Status MessageForm::apply_role(Json& message, size_t index) {
  if (!message.contains("role") || !message["role"].is_string()) {
    return invalid_argument(fmt::format("messages[{}] has no role", index));
  }
  const std::string role = message["role"];
  const std::vector<std::string>& roles = known_roles();
  if (std::find(roles.begin(), roles.end(), role) == roles.end()) {
    return invalid_argument(
        fmt::format("messages[{}].role is '{}', must be system, developer, user, assistant or tool",
                    index, printable(role)));
  }
  if (role == "developer" && !knows_developer_) {
    message["role"] = "system";
    changed_ = true;
  }
  return ok_status();
}

Result<std::string> MessageForm::text_of(const Json& parts, size_t index) const {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const Json& part = parts[i];
    const bool is_text = part.is_object() && part.contains("type") && part["type"] == "text" &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      return invalid_argument(fmt::format(
          "messages[{}].content[{}] is no text part, this model takes text only", index, i));
    }
    if (i > 0) text += '\n';
    text += part["text"].get<std::string>();
  }
  return text;
}

Status MessageForm::apply_content(Json& message, size_t index) {
  Json& content = message["content"];  // null where it was missing
  if (content.is_array()) {
    std::string text = TRY(text_of(content, index));
    if (traits_.takes_parts) return ok_status();
    content = std::move(text);
    changed_ = true;
  } else if (content.is_null()) {
    if (traits_.takes_null && message.contains("tool_calls")) return ok_status();
    content = "";
    changed_ = true;
  } else if (!content.is_string()) {
    return invalid_argument(
        fmt::format("messages[{}].content is a {}, must be a string, a list of text parts or null",
                    index, content.type_name()));
  }
  if (!traits_.takes_text && traits_.takes_parts && content.is_string()) {
    content = Json::array({{{"type", "text"}, {"text", content.get<std::string>()}}});
    changed_ = true;
  }
  return ok_status();
}

void MessageForm::apply_tool_calls(Json& message) {
  if (!message.contains("tool_calls") || !message["tool_calls"].is_array()) return;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object()) continue;
    Json& function = call.contains("function") ? call["function"] : call;
    if (!function.is_object() || !function.contains("arguments")) continue;
    Json& arguments = function["arguments"];
    if (arguments.is_string() && traits_.takes_object_arguments) {
      const std::string text = arguments;
      if (!check_nesting(text, "arguments").ok()) continue;
      Json parsed = Json::parse(text, nullptr, false);
      if (!parsed.is_object()) continue;
      arguments = std::move(parsed);
      changed_ = true;
    } else if (!arguments.is_string() && !traits_.takes_object_arguments) {
      arguments = dump_json(arguments);
      changed_ = true;
    }
  }
}

// For templates that know neither calls nor their results: calls as tool_prompt() asks for them,
// results as the user's words, those of one turn in one message.
void MessageForm::write_tools_as_text(Json& messages) {
  if (traits_.takes_tool_calls) return;
  Json written = Json::array();
  bool after_result = false;
  for (Json& message : messages) {
    const bool is_result = message["role"] == "tool" && message["content"].is_string();
    if (message.contains("tool_calls") && message["tool_calls"].is_array() &&
        message["content"].is_string()) {
      std::string text = message["content"];
      for (const Json& call : message["tool_calls"]) {
        if (!text.empty()) text += '\n';
        text += dump_json(call.is_object() && call.contains("function") ? call["function"] : call);
      }
      message["content"] = std::move(text);
      message.erase("tool_calls");
      changed_ = true;
    }
    if (is_result) {
      const bool has_name = message.contains("name") && message["name"].is_string();
      const std::string text = fmt::format("The function{} returned:\n{}",
                                           has_name ? " " + message["name"].get<std::string>() : "",
                                           message["content"].get<std::string>());
      changed_ = true;
      if (after_result) {
        Json& last = written.back()["content"];
        last = last.get<std::string>() + "\n" + text;
        continue;
      }
      message = Json{{"role", "user"}, {"content", text}};
    }
    after_result = is_result;
    written.push_back(std::move(message));
  }
  messages = std::move(written);
}

// For templates without a system message: its text before the first user's.
Status MessageForm::merge_system(Json& messages) {
  if (traits_.takes_system || messages[0]["role"] != "system") return ok_status();
  if (messages.size() < 2 || messages[1]["role"] != "user") {
    return invalid_argument(
        "messages has a system message without a user message after it, and this model's template "
        "takes system messages only before one");
  }
  const Json& system = messages[0]["content"];
  Json& user = messages[1]["content"];
  if (!system.is_string() || !user.is_string()) return ok_status();
  user = fmt::format("{}\n\n{}", system.get<std::string>(), user.get<std::string>());
  messages.erase(0);
  changed_ = true;
  return ok_status();
}

}  // namespace

const std::vector<std::string>& known_roles() {
  static const std::vector<std::string> roles = {"system", "developer", "user",    "assistant",
                                                 "tool",   "function",  "ipython", "model"};
  return roles;
}

Result<std::string> messages_for(const ChatTraits& traits, std::string_view text,
                                 std::string_view source) {
  Json messages = TRY(parse_messages(text));
  MessageForm form(traits, source);
  for (size_t i = 0; i < messages.size(); ++i) TRY(form.apply(messages[i], i));
  form.write_tools_as_text(messages);
  TRY(form.merge_system(messages));
  if (!form.changed()) return std::string(text);
  return dump_json(messages);
}

Result<std::string> with_system_text(std::string_view messages_text, std::string_view text) {
  Json messages = TRY(parse_messages(messages_text));
  Json& first = messages[0];
  const bool has_system = first.is_object() && first.contains("role") &&
                          first["role"] == "system" && first.contains("content") &&
                          first["content"].is_string();
  if (has_system) {
    first["content"] = fmt::format("{}\n\n{}", first["content"].get<std::string>(), text);
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", text}});
  }
  return dump_json(messages);
}

}  // namespace strata
