// A conversation as the text that a chat model was trained on, by the template in the model's file.
//
// The template (Jinja, runtime/text/jinja) writes the markers; what messages, tools and variables
// say stays marked as theirs and is never read as a control token. So a user who writes
// "<|im_end|>" sends ten characters and not the end of the turn. A model without a template gets
// the one of its family (chat_families.h), which warning() says.
//
// Templates differ in what they take. At load each is tried with small conversations, and requests
// are then put into the form that it knows: content as a string or as parts, null content, tool
// arguments as an object or as JSON text, a system message of its own or before the first user's.
#pragma once

#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"
#include "runtime/text/jinja/template.h"
#include "runtime/text/tokenizer.h"

namespace strata {

// All JSON texts are as in OpenAI's chat API.
struct ChatInput {
  std::string messages;               // a list of objects with a role
  std::string tools = "null";         // a list, or null
  std::string variables = "{}";       // more variables of the template, such as enable_thinking
  bool add_generation_prompt = true;  // end with the beginning of the assistant's turn
  std::tm now{};                      // local time for templates that write the date
};

// What a template was found to take.
struct ChatTraits {
  bool takes_text = true;              // content as a string
  bool takes_parts = false;            // content as [{"type": "text", "text": ...}]
  bool takes_null = false;             // null content beside tool calls
  bool takes_system = true;            // a system message
  bool takes_tools = false;            // writes the tools it is given
  bool takes_tool_calls = false;       // writes the calls of earlier turns, and their results
  bool takes_object_arguments = true;  // their arguments as an object, else as JSON text
};

// Threads: immutable; any thread.
class ChatTemplate {
 public:
  // The template in the file, else the family's by the markers of the vocabulary.
  // Errors: INVALID_ARGUMENT for a template that does not compile; UNIMPLEMENTED if there is
  // neither a template nor a known family.
  static Result<std::unique_ptr<ChatTemplate>> of_model(const Metadata& metadata,
                                                        const Vocab& vocab);
  // A template of one's own; `bos` and `eos` are the texts of bos_token and eos_token. `vocab`: of
  // the tokenizer that encode() will get; null if it will not be called.
  static Result<std::unique_ptr<ChatTemplate>> of_source(std::string_view source, std::string bos,
                                                         std::string eos,
                                                         const Vocab* vocab = nullptr);

  // "model" for the file's own, else the family: "chatml", "gemma", ...
  const std::string& name() const { return name_; }
  // One sentence where the family's template stands in; else empty.
  const std::string& warning() const { return warning_; }
  const std::string& source() const { return compiled_->source(); }
  const ChatTraits& traits() const { return traits_; }

  // The conversation's text in the form that the template takes.
  // Errors: INVALID_ARGUMENT naming the message for none at all, no or an unknown role, content
  // that is neither text nor text parts nor null; the sentence of a template that refuses the
  // conversation; RESOURCE_EXHAUSTED for one that needs too much.
  Result<jinja::MarkedText> render(const ChatInput& input) const;
  // The same without any change to the messages: as transformers would.
  Result<jinja::MarkedText> render_as_given(const ChatInput& input) const;
  // The ids of such a text: control tokens where the template wrote them, and exactly one BOS where
  // the model wants one. Of the tokens that the vocabulary calls user-defined, those that the
  // template knows as markers ("<think>") are held like control tokens; all others ("\n\n", "<b>")
  // are text that has a token of its own.
  std::vector<int32_t> encode(const Tokenizer& tokenizer, const jinja::MarkedText& text) const;

 private:
  ChatTemplate() = default;
  void find_traits();
  Result<jinja::MarkedText> render_with(const ChatInput& input, std::string messages) const;
  // Whether that gives a text with `wanted` in it and none of `unwanted`.
  bool renders(std::string_view messages, std::string_view wanted,
               std::initializer_list<std::string_view> unwanted = {},
               std::string_view tools = "null") const;

  std::shared_ptr<const jinja::Template> compiled_;
  std::string name_;
  std::string warning_;
  std::string bos_;
  std::string eos_;
  std::vector<int32_t> frame_tokens_;  // ascending
  ChatTraits traits_;
};

// A message for ChatInput::messages.
struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool", ...
  std::string content;
};
std::string messages_json(const std::vector<ChatMessage>& messages);

// The local time of the machine, for ChatInput::now.
std::tm local_now();

}  // namespace strata
