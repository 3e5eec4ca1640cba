// Tokens' log-probabilities in the shapes of OpenAI's APIs, given out only with the text that they
// stand for: a token that may turn out to be part of a stop string waits, and goes with it.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "backends/remote/client_records.h"
#include "coordinator/generator.h"
#include "runtime/text/tokenizer.h"
#include "serve/openai/json_body.h"

namespace strata::serve {

class TokenLogprobs {
 public:
  // `previous`: the last token of the prompt, or -1.
  TokenLogprobs(const Tokenizer& tokenizer, int32_t previous)
      : tokenizer_(tokenizer), previous_(previous) {}

  struct Entry {
    std::string piece;
    float logprob = 0;
    std::vector<std::pair<int32_t, float>> top;
    size_t begin = 0;  // where its text begins in the answer's
  };

  // A token came, and with it text of `bytes` bytes was given out. Returns what stands for it.
  std::vector<Entry> push(const remote::GenerateToken& token);
  // The entry's alternatives, as text.
  std::string piece(int32_t id) const { return tokenizer_.piece(id, id, {.special = true}); }

 private:
  const Tokenizer& tokenizer_;
  int32_t previous_;
  std::deque<Entry> waiting_;
  size_t token_bytes_ = 0;  // of all tokens so far
  size_t text_bytes_ = 0;   // given out
};

// {"token", "logprob", "bytes", "top_logprobs"}.
Json chat_logprob(const TokenLogprobs& tokens, const TokenLogprobs::Entry& entry);

}  // namespace strata::serve
