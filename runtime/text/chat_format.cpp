#include "runtime/text/chat_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/utf8.h"

namespace strata {
namespace {

constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kGemmaStart = "<start_of_turn>";
constexpr std::string_view kGemmaEnd = "<end_of_turn>";

Status check_messages(std::span<const ChatMessage> messages) {
  constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};
  if (messages.empty()) {
    return invalid_argument("messages is empty, a conversation needs at least one");
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (std::find(kRoles.begin(), kRoles.end(), messages[i].role) == kRoles.end()) {
      return invalid_argument(
          fmt::format("messages[{}].role is '{}', must be system, user, assistant or tool", i,
                      printable(messages[i].role)));
    }
  }
  return ok_status();
}

// <|im_start|>role, a line break, the content, <|im_end|>, a line break.
class ChatMlFormat final : public ChatFormat {
 public:
  explicit ChatMlFormat(std::string default_system) : default_system_(std::move(default_system)) {}

  std::string_view name() const override { return "chatml"; }

  Result<std::vector<ChatPiece>> render(std::span<const ChatMessage> messages,
                                        bool add_generation_prompt) const override {
    TRY(check_messages(messages));
    std::vector<ChatPiece> pieces;
    if (messages[0].role != "system" && !default_system_.empty()) {
      append_turn("system", default_system_, pieces);
    }
    for (const ChatMessage& message : messages) {
      append_turn(message.role, message.content, pieces);
    }
    if (add_generation_prompt) {
      pieces.push_back({std::string(kTurnStart), true});
      pieces.push_back({"assistant\n", false});
    }
    return pieces;
  }

 private:
  static void append_turn(std::string_view role, std::string_view content,
                          std::vector<ChatPiece>& pieces) {
    pieces.push_back({std::string(kTurnStart), true});
    pieces.push_back({fmt::format("{}\n{}", role, content), false});
    pieces.push_back({std::string(kTurnEnd), true});
    pieces.push_back({"\n", false});
  }

  std::string default_system_;
};

// Without leading and trailing white space, as the template's `trim` does.
std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\v\f\r";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

// <start_of_turn>user or model, a line break, the content, <end_of_turn>, a line break. A system
// message stands before the first user's words.
class GemmaFormat final : public ChatFormat {
 public:
  std::string_view name() const override { return "gemma"; }

  Result<std::vector<ChatPiece>> render(std::span<const ChatMessage> messages,
                                        bool add_generation_prompt) const override {
    TRY(check_messages(messages));
    std::string system;
    size_t first = 0;
    if (messages[0].role == "system") {
      system = messages[0].content + "\n\n";
      first = 1;
      if (messages.size() == 1) {
        return invalid_argument(
            "messages has a system message only, this model needs a user message after it");
      }
    }
    std::vector<ChatPiece> pieces;
    for (size_t i = first; i < messages.size(); ++i) {
      const bool user = (i - first) % 2 == 0;
      const std::string_view wanted = user ? "user" : "assistant";
      if (messages[i].role != wanted) {
        return invalid_argument(
            fmt::format("messages[{}].role is '{}', must be {}: this model's conversations "
                        "alternate between user and assistant",
                        i, messages[i].role, wanted));
      }
      pieces.push_back({std::string(kGemmaStart), true});
      pieces.push_back({fmt::format("{}\n{}{}", user ? "user" : "model", i == first ? system : "",
                                    trimmed(messages[i].content)),
                        false});
      pieces.push_back({std::string(kGemmaEnd), true});
      pieces.push_back({"\n", false});
    }
    if (add_generation_prompt) {
      pieces.push_back({std::string(kGemmaStart), true});
      pieces.push_back({"model\n", false});
    }
    return pieces;
  }
};

// The system message that a ChatML template writes when a conversation has none: the literal text
// between "<|im_start|>system\n" and "<|im_end|>". Empty if the template has no such text.
std::string default_system_of(std::string_view chat_template) {
  const std::string opening = fmt::format("{}system", kTurnStart);
  for (size_t at = chat_template.find(opening); at != std::string_view::npos;
       at = chat_template.find(opening, at + 1)) {
    std::string_view rest = chat_template.substr(at + opening.size());
    // A line break, or its escape in a string of the template.
    const size_t line_break = rest.starts_with("\n") ? 1 : rest.starts_with("\\n") ? 2 : 0;
    const size_t end = rest.find(kTurnEnd);
    if (line_break == 0 || end == std::string_view::npos || end < line_break) continue;
    const std::string_view text = rest.substr(line_break, end - line_break);
    // A quote or a brace ends the literal: what follows is computed.
    if (!text.empty() && text.find_first_of("'\"{}") == std::string_view::npos) {
      return std::string(text);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ChatFormat>> make_chat_format(const Metadata& metadata, const Vocab& vocab) {
  const auto has = [&vocab](std::string_view start, std::string_view end) {
    return vocab.find(start) >= 0 && vocab.find(end) >= 0;
  };
  if (has(kTurnStart, kTurnEnd)) {
    const std::string chat_template = TRY(metadata.get_or<std::string>(kTemplateKey, ""));
    return std::unique_ptr<ChatFormat>(
        std::make_unique<ChatMlFormat>(default_system_of(chat_template)));
  }
  if (has(kGemmaStart, kGemmaEnd)) {
    return std::unique_ptr<ChatFormat>(std::make_unique<GemmaFormat>());
  }
  return unimplemented(
      fmt::format("{}: the vocabulary has the markers of no chat format that Strata knows "
                  "(ChatML, Gemma)",
                  metadata.source()),
      "use `strata run` with a plain prompt, or an instruction-tuned model");
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::span<const ChatPiece> pieces) {
  std::vector<int32_t> ids;
  std::string plain;
  const auto append = [&](std::string_view text, bool marker) {
    const std::vector<int32_t> more = tokenizer.encode(text, {.parse_special = marker});
    ids.insert(ids.end(), more.begin(), more.end());
  };
  // Neighbouring plain pieces are one text to the model.
  for (const ChatPiece& piece : pieces) {
    if (!piece.marker) {
      plain += piece.text;
      continue;
    }
    append(plain, false);
    plain.clear();
    append(piece.text, true);
  }
  append(plain, false);
  const int32_t bos = tokenizer.vocab().special().bos;
  const bool has_bos = !ids.empty() && ids[0] == bos;
  if (tokenizer.vocab().add_bos() && !has_bos) ids.insert(ids.begin(), bos);
  return ids;
}

}  // namespace strata
