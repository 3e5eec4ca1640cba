#include "coordinator/chat_format.h"

#include <nlohmann/json.hpp>

#include "runtime/base/json_text.h"
#include "runtime/text/answer/tool_grammar.h"
#include "runtime/text/answer/tools.h"
#include "runtime/text/chat_messages.h"

namespace strata::coordinator {
namespace {

// The text of the assistant's last message, which is taken off the messages; empty if the last one
// is another's, has calls, or is the only one. Requires: check_nesting() passed.
std::string take_last_answer(std::string& messages) {
  using Json = nlohmann::ordered_json;
  Json list = Json::parse(messages, nullptr, false);
  if (!list.is_array() || list.size() < 2) return {};
  const Json& last = list.back();
  const bool is_answer = last.is_object() && last.value("role", Json()) == "assistant" &&
                         last.value("tool_calls", Json()).empty() && last.contains("content");
  if (!is_answer) return {};
  std::string text;
  if (last["content"].is_string()) text = last["content"];
  if (last["content"].is_array()) {
    for (const Json& part : last["content"]) {
      const Json piece = part.is_object() ? part.value("text", Json()) : Json();
      if (!piece.is_string()) return {};
      text += piece.get<std::string>();
    }
  }
  if (text.empty()) return {};
  list.erase(list.size() - 1);
  messages = dump_json(list);
  return text;
}

}  // namespace

ChatFormat::ChatFormat(std::unique_ptr<ChatTemplate> chat, const Tokenizer& tokenizer)
    : template_(std::move(chat)), tokenizer_(tokenizer), syntax_(tool_format_of(*template_)) {
  const Vocab& vocab = tokenizer.vocab();
  for (const std::string& marker : syntax_.markers()) {
    const int32_t id = vocab.find(marker);
    if (vocab.contains(id) && vocab.is_control(id)) shown_tokens_.push_back(id);
  }
}

Result<std::unique_ptr<ChatFormat>> ChatFormat::of_model(const Metadata& metadata,
                                                         const Tokenizer& tokenizer) {
  std::unique_ptr<ChatTemplate> chat = TRY(ChatTemplate::of_model(metadata, tokenizer.vocab()));
  return std::unique_ptr<ChatFormat>(new ChatFormat(std::move(chat), tokenizer));
}

Result<ChatFormat::Prompt> ChatFormat::prepare(const remote::ChatPrompt& chat, const Extras& extras,
                                               const CheckSize& check_size) const {
  const std::vector<Tool> tools = TRY(parse_tools(chat.tools));
  const ToolChoice choice = TRY(parse_tool_choice(chat.tool_choice, tools));
  Prompt prompt;
  prompt.answer = answer_options(tools, choice);
  TRY(check_nesting(chat.messages, "messages"));
  ChatInput input = {.messages = chat.messages,
                     .variables = extras.variables,
                     .add_generation_prompt = extras.add_generation_prompt,
                     .now = local_now()};
  const std::string begun = extras.continue_last ? take_last_answer(input.messages) : std::string();
  if (prompt.answer.parse_calls) {
    input.tools = wrapped_tools(chat.tools);
    if (!syntax_.template_writes_tools) {
      input.messages = TRY(with_system_text(input.messages, tool_prompt(input.tools)));
    }
  }
  jinja::MarkedText text = TRY(template_->render(input));
  if (!begun.empty()) {
    // A client's words, as those of all messages.
    const size_t begin = text.bytes.size();
    text.bytes += begun;
    if (text.has_foreign() && text.foreign.back().end == begin) {
      text.foreign.back().end = text.bytes.size();
    } else {
      text.foreign.push_back({begin, text.bytes.size()});
    }
  }
  if (check_size) TRY(check_size(text.bytes.size()));
  prompt.ids = template_->encode(tokenizer_, text);
  prompt.answer.starts_in_reasoning = prompt_opens_reasoning(syntax_, text.bytes);
  const bool has_reasoning = !syntax_.think_begin.empty() || syntax_.syntax == CallSyntax::channels;
  prompt.splits_answer = prompt.answer.parse_calls || (has_reasoning && extras.split_answer);
  prompt.grammar = tool_grammar(syntax_, tools, choice, prompt.answer.starts_in_reasoning);
  prompt.text = std::move(text.bytes);
  return prompt;
}

}  // namespace strata::coordinator
