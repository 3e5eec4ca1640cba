#include "coordinator/chat_format.h"

#include "runtime/text/answer/tool_grammar.h"
#include "runtime/text/answer/tools.h"
#include "runtime/text/chat_messages.h"

namespace strata::coordinator {

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

Result<ChatFormat::Prompt> ChatFormat::prepare(const remote::ChatPrompt& chat) const {
  const std::vector<Tool> tools = TRY(parse_tools(chat.tools));
  const ToolChoice choice = TRY(parse_tool_choice(chat.tool_choice, tools));
  Prompt prompt;
  prompt.answer = answer_options(tools, choice);
  ChatInput input = {.messages = chat.messages, .now = local_now()};
  if (prompt.answer.parse_calls) {
    input.tools = wrapped_tools(chat.tools);
    if (!syntax_.template_writes_tools) {
      input.messages = TRY(with_system_text(input.messages, tool_prompt(input.tools)));
    }
  }
  const jinja::MarkedText text = TRY(template_->render(input));
  prompt.ids = template_->encode(tokenizer_, text);
  prompt.answer.starts_in_reasoning = prompt_opens_reasoning(syntax_, text.bytes);
  prompt.splits_answer = prompt.answer.parse_calls || !syntax_.think_begin.empty() ||
                         syntax_.syntax == CallSyntax::channels;
  prompt.grammar = tool_grammar(syntax_, tools, choice, prompt.answer.starts_in_reasoning);
  return prompt;
}

}  // namespace strata::coordinator
