// Text to token ids and back, for any vocabulary that Vocab loads.
//
// encode() cuts the text at special tokens (special_splitter.h), and one of three encoders turns
// what is between them into ids: spm_tokenizer.h, bpe_tokenizer.h, wordpiece_tokenizer.h. The ids
// equal llama.cpp's for the same file. Any bytes are accepted: what is no UTF-8 becomes byte tokens
// (SentencePiece) or U+FFFD (the others).
//
// Not here: chat frames (chat_template.h), text that arrives token by token (stream_decoder.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/gguf/metadata.h"
#include "runtime/text/special_splitter.h"
#include "runtime/text/vocab.h"

namespace strata {

struct EncodeOptions {
  // Read "<|im_end|>" and the like as control tokens. Never for a text that a user wrote.
  bool parse_special = false;
  // Begin and end with what the model wants: BOS, EOS, [CLS] and [SEP].
  bool add_special = false;
  // With add_special: no second BOS before a text that begins with it.
  bool single_bos = false;
  // With parse_special: the parts of the text that may not give control tokens.
  std::span<const UntrustedRange> untrusted = {};
  // User-defined tokens that these parts may not give either; ascending.
  std::span<const int32_t> barred = {};
};

struct DecodeOptions {
  // Show control tokens by their texts instead of leaving them out.
  bool special = false;
  // Control tokens to show in any case. Must outlive who decodes.
  std::span<const int32_t> shown = {};
};

// Threads: immutable after construction; any thread.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  const Vocab& vocab() const { return vocab_; }

  std::vector<int32_t> encode(std::string_view text, EncodeOptions options = {}) const;

  // The inverse of encode() for a text that the vocabulary can hold. Bytes as the tokens give them,
  // not always UTF-8. Ids outside the vocabulary (a model's padded output rows) give nothing; ask
  // vocab().check_ids() where that is an error.
  std::string decode(std::span<const int32_t> ids, DecodeOptions options = {}) const;

  // The bytes that `id` adds to a text which already has `previous` at its end (-1: an empty text).
  // decode() is the pieces one after another. The previous token matters to vocabularies that put a
  // space before a text: it is taken off again after the beginning and after special tokens.
  std::string piece(int32_t id, int32_t previous, DecodeOptions options = {}) const;

 protected:
  explicit Tokenizer(Vocab vocab);

  // Appends the ids of plain text without special tokens. `after_special`: it stands at the
  // beginning or right after a special token. Requires: text not empty.
  virtual void encode_plain(std::string_view text, bool after_special,
                            std::vector<int32_t>& ids) const = 0;
  // The bytes of a token that is neither control nor user-defined.
  virtual std::string plain_piece(int32_t id) const = 0;
  // What encode_plain puts before a text after a special token, to take off again; may be empty.
  virtual std::string_view prefix() const { return {}; }

 private:
  bool begins_plain_text(int32_t previous) const;

  Vocab vocab_;
  SpecialSplitter splitter_;
};

// The tokenizer that the model's metadata describes.
// Errors: as Vocab::load(); INVALID_ARGUMENT "... merge N ..." for a malformed merge; UNIMPLEMENTED
// for a tokenizer or pre-tokenizer that Strata does not know, with those that it does.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const Metadata& metadata);

}  // namespace strata
