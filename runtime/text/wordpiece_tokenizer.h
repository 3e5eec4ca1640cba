// WordPiece as BERT uses it: words in lower case without accents, cut into the longest tokens from
// the left. A word with a part that is no token becomes [UNK] as a whole.
//
// Word beginnings are written "▁" in the file, continuations without a mark.
#pragma once

#include "runtime/text/token_trie.h"
#include "runtime/text/tokenizer.h"

namespace strata {

// Threads: as Tokenizer. decode() gives normalised words with single spaces: the text itself is
// lost in encoding.
class WordpieceTokenizer final : public Tokenizer {
 public:
  explicit WordpieceTokenizer(Vocab vocab);

 protected:
  void encode_plain(std::string_view text, bool after_special,
                    std::vector<int32_t>& ids) const override;
  std::string plain_piece(int32_t id) const override;
  std::string_view prefix() const override { return " "; }

 private:
  void encode_word(const std::string& word, std::vector<int32_t>& ids) const;

  TokenTrie trie_;
};

}  // namespace strata
