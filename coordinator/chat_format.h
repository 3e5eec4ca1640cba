// ChatFormat: how a model's chats are written: the prompt by its template, the answer in its
// family's syntax for reasoning and tool calls.
//
// Threads: immutable; any thread. The tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/remote/client_records.h"
#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"
#include "runtime/text/answer/answer_parser.h"
#include "runtime/text/answer/tool_format.h"
#include "runtime/text/chat_template.h"
#include "runtime/text/tokenizer.h"

namespace strata::coordinator {

class ChatFormat {
 public:
  // Errors: those of ChatTemplate::of_model().
  static Result<std::unique_ptr<ChatFormat>> of_model(const Metadata& metadata,
                                                      const Tokenizer& tokenizer);

  // What a caller in this process may ask for beside a client's chat.
  struct Extras {
    // More variables of the template, a JSON object such as {"enable_thinking": false}.
    std::string variables = "{}";
    // A last message of the assistant is the beginning of the answer, which goes on with it.
    bool continue_last = false;
    bool add_generation_prompt = true;
    bool split_answer = true;  // false: reasoning stays in the content
  };
  struct Prompt {
    std::vector<int32_t> ids;
    std::string text;            // that they came from
    std::string grammar;         // composed; empty: the answer may be anything
    bool splits_answer = false;  // there may be more in it than content
    AnswerOptions answer;        // for the parser, if so
  };
  // Errors: INVALID_ARGUMENT for messages, tools and choices that are none; those of the template.
  // `check_size` looks at the prompt's text before it becomes tokens; may be empty.
  using CheckSize = std::function<Status(size_t text_bytes)>;
  Result<Prompt> prepare(const remote::ChatPrompt& chat, const Extras& extras,
                         const CheckSize& check_size = {}) const;
  Result<Prompt> prepare(const remote::ChatPrompt& chat) const { return prepare(chat, Extras()); }

  const ChatTemplate& chat_template() const { return *template_; }
  const ToolFormat& syntax() const { return syntax_; }
  // Control tokens that a parser of answers has to see.
  std::span<const int32_t> shown_tokens() const { return shown_tokens_; }

 private:
  ChatFormat(std::unique_ptr<ChatTemplate> chat, const Tokenizer& tokenizer);

  std::unique_ptr<ChatTemplate> template_;
  const Tokenizer& tokenizer_;
  ToolFormat syntax_;
  std::vector<int32_t> shown_tokens_;
};

}  // namespace strata::coordinator
