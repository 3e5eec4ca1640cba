#include "runtime/grammar/vocabulary.h"

#include <algorithm>
#include <numeric>

namespace strata::grammar {
namespace {

// Longer ones are not offered; real vocabularies stay below 300 bytes.
constexpr size_t kTextBytesMax = 1024;

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> texts, std::vector<ControlToken> controls)
    : texts_(std::move(texts)), controls_(std::move(controls)) {
  std::vector<int32_t> order;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string& text = texts_[static_cast<size_t>(id)];
    if (text.empty() || text.size() > kTextBytesMax) continue;
    order.push_back(id);
    longest_ = std::max(longest_, static_cast<uint32_t>(text.size()));
    if (text[0] == ' ') with_first_space_.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [this](int32_t a, int32_t b) {
    return texts_[static_cast<size_t>(a)] < texts_[static_cast<size_t>(b)];
  });
  bytes_.push_back(0);
  depths_.push_back(0);
  token_begins_.push_back(0);
  std::vector<uint32_t> path = {0};  // the nodes of the text before
  afters_.push_back(0);
  std::string_view before;
  const auto close_down_to = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      afters_[path.back()] = static_cast<uint32_t>(bytes_.size());
    }
  };
  for (const int32_t id : order) {
    const std::string_view text = texts_[static_cast<size_t>(id)];
    const auto common = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
    const auto shared = static_cast<size_t>(common.first - before.begin());
    close_down_to(shared);
    for (size_t depth = shared; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(bytes_.size()));
      bytes_.push_back(static_cast<uint8_t>(text[depth]));
      depths_.push_back(static_cast<uint16_t>(depth + 1));
      afters_.push_back(0);
      token_begins_.push_back(static_cast<uint32_t>(token_ids_.size()));
    }
    token_ids_.push_back(id);
    before = text;
  }
  close_down_to(0);
  afters_[0] = static_cast<uint32_t>(bytes_.size());
  token_begins_.push_back(static_cast<uint32_t>(token_ids_.size()));
}

std::shared_ptr<const Vocabulary> Vocabulary::of(const Tokenizer& tokenizer) {
  const Vocab& vocab = tokenizer.vocab();
  std::vector<std::string> texts(static_cast<size_t>(vocab.size()));
  std::vector<ControlToken> controls;
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.is_control(id)) controls.push_back({id, std::string(vocab.text(id))});
    const bool silent = vocab.is_control(id) || vocab.type(id) == TokenType::unused;
    if (silent) continue;
    // After any token of plain text: in the middle of the answer.
    texts[static_cast<size_t>(id)] = tokenizer.piece(id, id);
  }
  return std::make_shared<Vocabulary>(std::move(texts), std::move(controls));
}

}  // namespace strata::grammar
