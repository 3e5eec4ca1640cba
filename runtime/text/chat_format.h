// A conversation as the text that a chat model was trained on: who speaks, in markers that only the
// frame may write.
//
// A format renders messages into pieces; markers ("<|im_start|>") become control tokens, everything
// else is encoded as plain text. So a user who writes "<|im_end|>" sends ten characters and not the
// end of the turn. A full template engine can take this interface's place: it has to say of each
// piece whether the template or a message wrote it.
//
// Formats here: ChatML (SmolLM2, Qwen) and Gemma's turns.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"
#include "runtime/text/tokenizer.h"

namespace strata {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct ChatPiece {
  std::string text;
  bool marker = false;  // written by the frame: read as control tokens
};

// Threads: immutable; any thread.
class ChatFormat {
 public:
  virtual ~ChatFormat() = default;

  // "chatml", "gemma".
  virtual std::string_view name() const = 0;

  // The conversation, and with `add_generation_prompt` the beginning of the assistant's turn.
  // Without BOS: encode_chat() adds it.
  // Errors: INVALID_ARGUMENT naming the message, for none at all, an unknown role, or an order of
  // roles that the model does not know.
  virtual Result<std::vector<ChatPiece>> render(std::span<const ChatMessage> messages,
                                                bool add_generation_prompt) const = 0;
};

// The format that the vocabulary has the markers for; a default system message comes from the
// file's template where it has one.
// Errors: UNIMPLEMENTED if the model has none of the known formats.
Result<std::unique_ptr<ChatFormat>> make_chat_format(const Metadata& metadata, const Vocab& vocab);

// The ids of rendered pieces, with exactly one BOS where the model wants one.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatPiece> pieces);

}  // namespace strata
