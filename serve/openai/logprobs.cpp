#include "serve/openai/logprobs.h"

#include <nlohmann/json.hpp>

namespace strata::serve {
namespace {

Json one_token(const std::string& piece, float logprob) {
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", piece}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::vector<TokenLogprobs::Entry> TokenLogprobs::push(const remote::GenerateToken& token) {
  text_bytes_ += token.text.size();
  if (token.id >= 0) {
    Entry entry{.piece = tokenizer_.piece(token.id, previous_, {.special = true}),
                .logprob = token.logprob,
                .top = token.top,
                .begin = token_bytes_};
    // A control token adds nothing to the text.
    token_bytes_ += tokenizer_.piece(token.id, previous_).size();
    previous_ = token.id;
    waiting_.push_back(std::move(entry));
  }
  std::vector<Entry> ready;
  while (!waiting_.empty()) {
    const Entry& next = waiting_.front();
    const bool is_out =
        next.begin < text_bytes_ || (next.begin == token_bytes_ && next.begin == text_bytes_);
    if (!is_out) break;
    ready.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  return ready;
}

Json chat_logprob(const TokenLogprobs& tokens, const TokenLogprobs::Entry& entry) {
  Json result = one_token(entry.piece, entry.logprob);
  Json top = Json::array();
  for (const auto& [id, logprob] : entry.top) top.push_back(one_token(tokens.piece(id), logprob));
  result["top_logprobs"] = std::move(top);
  return result;
}

}  // namespace strata::serve
