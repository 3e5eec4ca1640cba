// TextSession: one answer's tokens as text, up to the first stop string.
//
// Characters are never split (runtime/text/stream_decoder.h), and text that may turn out to begin a
// stop string is held back until that is decided, so that what was given out never has to be taken
// back. Streamed pieces joined are the whole answer.
//
// Threads: externally synchronised; one per answer. The tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/stream_decoder.h"

namespace strata::coordinator {

class TextSession {
 public:
  // `last_prompt_token`: -1 if there is none. Empty stop strings are ignored.
  TextSession(const Tokenizer& tokenizer, int32_t last_prompt_token, std::vector<std::string> stop);

  // The text that is certain now that `id` came; may be empty. Empty after stopped().
  std::string push(int32_t id);
  // A stop string was found; the text before it has been given out, the rest is dropped.
  bool stopped() const { return stopped_; }
  // What is held back, at the end of the answer.
  std::string flush();

 private:
  std::string release(std::string text, bool at_end);

  StreamDecoder decoder_;
  std::vector<std::string> stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace strata::coordinator
