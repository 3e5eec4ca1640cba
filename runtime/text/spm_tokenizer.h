// SentencePiece as llama and gemma files use it: characters are joined to tokens by the best score.
//
// Spaces are written "▁" and, where the vocabulary asks for it, one stands before the text. Of all
// neighbouring pairs that together are a token the one with the highest score is joined first, of
// equals the leftmost. A character that is no token becomes its bytes' tokens "<0xE2>".
#pragma once

#include <array>

#include "runtime/text/tokenizer.h"

namespace strata {

// Threads: as Tokenizer.
class SpmTokenizer final : public Tokenizer {
 public:
  explicit SpmTokenizer(Vocab vocab);

 protected:
  void encode_plain(std::string_view text, bool after_special,
                    std::vector<int32_t>& ids) const override;
  std::string plain_piece(int32_t id) const override;
  std::string_view prefix() const override { return vocab().add_space_prefix() ? " " : ""; }

 private:
  // Joins one stretch of marked text. Requires: not empty.
  void encode_stretch(std::string_view marked, std::vector<int32_t>& ids) const;
  void append_bytes(std::string_view bytes, std::vector<int32_t>& ids) const;

  // No token has a space behind something else: then words are independent, and short lists of
  // pieces are much faster than one of the whole text.
  bool words_are_independent_ = true;
  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary has no token for this byte
};

}  // namespace strata
