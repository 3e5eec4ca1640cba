// Byte-level pairs as GPT-2, Llama 3, Qwen and many others use them.
//
// A text is split into words by the family's regular expressions (pretokenizer.h). Each byte of a
// word is a token; of all neighbouring tokens that merge, the pair of the lowest rank is merged
// first, of equals the leftmost.
#pragma once

#include <array>
#include <memory>

#include "runtime/text/merge_table.h"
#include "runtime/text/pretokenizer.h"
#include "runtime/text/tokenizer.h"

namespace strata {

// Threads: as Tokenizer.
class BpeTokenizer final : public Tokenizer {
 public:
  // Errors: of MergeTable::load() and Pretokenizer::create().
  static Result<std::unique_ptr<BpeTokenizer>> create(Vocab vocab, const Metadata& metadata);

 protected:
  void encode_plain(std::string_view text, bool after_special,
                    std::vector<int32_t>& ids) const override;
  std::string plain_piece(int32_t id) const override;

 private:
  BpeTokenizer(Vocab vocab, MergeTable merges, Pretokenizer pretokenizer);
  void encode_word(std::string_view word, std::vector<int32_t>& ids) const;

  MergeTable merges_;
  Pretokenizer pretokenizer_;
  std::array<int32_t, 256> byte_ids_{};  // -1: the vocabulary has no token for this byte
};

}  // namespace strata
