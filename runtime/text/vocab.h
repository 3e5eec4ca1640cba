// A model's vocabulary: the texts, scores and kinds of its tokens, and which ids mean something
// special. Read once from the metadata, with every array length and id checked.
//
// Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md ("Tokenizer").
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"

namespace strata {

// How texts become tokens: tokenizer.ggml.model.
enum class VocabKind {
  spm,        // "llama": SentencePiece, merges by score, bytes as a fallback
  bpe,        // "gpt2": byte-level, merges by rank
  wordpiece,  // "bert": longest match from the left
};

// The numbers are the file format's.
enum class TokenType : uint8_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,       // has a meaning, not a text: recognised only if asked for
  user_defined = 4,  // always a token of its own wherever its text stands
  unused = 5,
  byte = 6,  // "<0x0A>": one byte
};

// -1: the vocabulary has none.
struct SpecialIds {
  int32_t bos = -1;
  int32_t eos = -1;
  int32_t eot = -1;  // end of a turn
  int32_t eom = -1;  // end of a message that goes on
  int32_t unk = -1;
  int32_t sep = -1;
  int32_t pad = -1;
  int32_t mask = -1;
};

// Threads: immutable after load(); any thread.
class Vocab {
 public:
  // Errors: INVALID_ARGUMENT naming key and value for whatever is wrong in the file; UNIMPLEMENTED
  // for a kind of tokenizer that is not built here.
  static Result<Vocab> load(const Metadata& metadata);

  VocabKind kind() const { return kind_; }
  // The pre-tokenizer's name, such as "llama-bpe"; bpe only, "default" where the file has none.
  const std::string& pre() const { return pre_; }

  int32_t size() const { return static_cast<int32_t>(types_.size()); }
  bool contains(int32_t id) const { return id >= 0 && id < size(); }
  // INVALID_ARGUMENT for the first id outside the vocabulary.
  Status check_ids(std::span<const int32_t> ids) const;

  // These require contains(id). A text is bytes of any kind: as in the file, so with
  // SentencePiece's "▁" or GPT-2's "Ġ" for a space.
  std::string_view text(int32_t id) const;
  float score(int32_t id) const;
  TokenType type(int32_t id) const { return types_[static_cast<size_t>(id)]; }
  bool is_control(int32_t id) const {
    return type(id) == TokenType::control || type(id) == TokenType::unknown;
  }
  bool is_user_defined(int32_t id) const { return type(id) == TokenType::user_defined; }
  // The token stands for its text: it may come out of merging. Control and byte tokens may not, so
  // that no text spells them by accident or on purpose.
  bool is_text(int32_t id) const { return !is_control(id) && type(id) != TokenType::byte; }
  // White space after this token belongs to it (Phi-3's special tokens), or before it (mask
  // tokens).
  bool strips_right(int32_t id) const { return (strips_[static_cast<size_t>(id)] & kRight) != 0; }
  bool strips_left(int32_t id) const { return (strips_[static_cast<size_t>(id)] & kLeft) != 0; }

  // The token of this text, -1 if there is none. Of duplicates the highest id.
  int32_t find(std::string_view text) const;

  const SpecialIds& special() const { return special_; }
  bool add_bos() const { return add_bos_; }  // only with a bos id
  bool add_eos() const { return add_eos_; }  // only with an eos id
  bool add_space_prefix() const { return add_space_prefix_; }

  // Ids after which a model has said all: eos, eot, eom, and tokens with well-known names such as
  // "<|im_end|>". Ascending. May be empty.
  std::span<const int32_t> end_of_generation() const { return end_of_generation_; }
  bool is_end_of_generation(int32_t id) const;

 private:
  static constexpr uint8_t kLeft = 1;
  static constexpr uint8_t kRight = 2;

  Status load_tokens(const Metadata& metadata);
  Status load_special_ids(const Metadata& metadata);
  Status load_flags(const Metadata& metadata);
  Status build_index(const Metadata& metadata);
  void set_strips(const Metadata& metadata);
  void collect_end_of_generation();

  VocabKind kind_ = VocabKind::spm;
  std::string pre_;
  std::string texts_;                // all, one after another
  std::vector<uint64_t> text_ends_;  // in texts_
  std::vector<float> scores_;        // empty: all 0
  std::vector<TokenType> types_;
  std::vector<uint8_t> strips_;
  // Open addressing by the text's hash, a power of two long: id, or -1.
  std::vector<int32_t> index_;
  SpecialIds special_;
  bool add_bos_ = false;
  bool add_eos_ = false;
  bool add_space_prefix_ = false;
  std::vector<int32_t> end_of_generation_;
};

}  // namespace strata
