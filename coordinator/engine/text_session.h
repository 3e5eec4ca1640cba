// TextSession: one answer's tokens as text, up to the first stop string.
//
// Characters are never split (runtime/text/stream_decoder.h), and text that may turn out to begin a
// stop string is held back until that is decided (runtime/text/stop_matcher.h). Streamed pieces
// joined are the whole answer.
//
// Threads: externally synchronised; one per answer. The tokenizer must outlive it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/text/stop_matcher.h"
#include "runtime/text/stream_decoder.h"

namespace strata::coordinator {

class TextSession {
 public:
  // `last_prompt_token`: -1 if there is none. Empty stop strings are ignored: who takes requests
  // refuses them.
  TextSession(const Tokenizer& tokenizer, int32_t last_prompt_token, std::vector<std::string> stop,
              DecodeOptions options = {});

  // The text that is certain now that `id` came; may be empty. Empty after stopped().
  std::string push(int32_t id);
  // A stop string was found; the text before it has been given out, the rest is dropped.
  bool stopped() const { return stop_.stopped(); }
  // What is held back, at the end of the answer.
  std::string flush();

 private:
  StreamDecoder decoder_;
  StopMatcher stop_;
};

}  // namespace strata::coordinator
