// Tokens to text as they are generated, without ever giving out half a character.
//
// A token of a byte-level vocabulary may end inside a UTF-8 character. Such bytes are held back
// until the character is complete, or until they cannot become one: then each shows as U+FFFD. All
// that push() and flush() give is UTF-8, and together it is replace_invalid_utf8(decode(ids)).
#pragma once

#include <cstdint>
#include <string>

#include "runtime/text/tokenizer.h"

namespace strata {

// Threads: externally synchronised; one per sequence. The tokenizer must outlive it.
class StreamDecoder {
 public:
  // `previous`: the last token before the stream (of the prompt), -1 if there is none; it decides
  // whether a leading space belongs to the text, see Tokenizer::piece().
  explicit StreamDecoder(const Tokenizer& tokenizer, int32_t previous = -1,
                         DecodeOptions options = {});

  // The text that is certain now that `id` came; often one word, sometimes empty.
  std::string push(int32_t id);
  // What is held back, at the end of the stream: incomplete characters as U+FFFD.
  std::string flush();
  // Bytes held back: 0 to 3.
  size_t pending_bytes() const { return held_.size(); }

 private:
  const Tokenizer& tokenizer_;
  DecodeOptions options_;
  int32_t previous_;
  std::string held_;
};

}  // namespace strata
