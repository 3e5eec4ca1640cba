#include "runtime/grammar/vocabulary.h"

#include <algorithm>

#include "runtime/text/unicode.h"

namespace strata::grammar {
namespace {

// Longer ones are not offered; real vocabularies stay below 300 bytes.
constexpr size_t kTextBytesMax = 1024;

struct ClassedCharacter {
  ClassSet set;
  size_t bytes;
};

// The character at `at`; at the text's end also the beginning of one. What is none reaches to the
// text's end.
ClassedCharacter character_at(std::string_view text, size_t at) {
  const DecodedCharacter next = decode_utf8(text, at);
  if (next.valid) return {class_of(next.code_point), next.length};
  const std::string_view rest = text.substr(at);
  if (may_become_utf8(rest)) {
    for (const char filler : {'\x80', '\xBF'}) {
      std::string completed(rest);
      completed.resize(announced_utf8_length(rest[0]), filler);
      const DecodedCharacter whole = decode_utf8(completed, 0);
      if (whole.valid) return {class_of(whole.code_point), rest.size()};
    }
  }
  return {kBrokenClass, rest.size()};
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> texts) : texts_(std::move(texts)) {
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
  nodes_.emplace_back();
  std::vector<uint32_t> path = {0};  // the nodes of the text before
  std::string_view before;
  const auto close_down_to = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      nodes_[path.back()].after = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (const int32_t id : order) {
    const std::string_view text = texts_[static_cast<size_t>(id)];
    const auto common = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
    const auto shared = static_cast<size_t>(common.first - before.begin());
    close_down_to(shared);
    for (size_t depth = shared; depth < text.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      Node& node = nodes_.emplace_back();
      node.first_token = static_cast<uint32_t>(token_ids_.size());
      node.depth = static_cast<uint16_t>(depth + 1);
      node.byte = static_cast<uint8_t>(text[depth]);
    }
    token_ids_.push_back(id);
    add_classes(text, path);
    before = text;
  }
  close_down_to(0);
  nodes_[0].after = static_cast<uint32_t>(nodes_.size());
  nodes_.emplace_back().first_token = static_cast<uint32_t>(token_ids_.size());
  build_slices();
}

// Tells the nodes of a text's characters what stands from there on.
void Vocabulary::add_classes(std::string_view text, std::span<const uint32_t> path) {
  ClassSet below[kTextBytesMax];
  size_t begins[kTextBytesMax];
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) {
    const ClassedCharacter next = character_at(text, at);
    begins[count] = at;
    below[count] = next.set;
    at += next.bytes;
  }
  ClassSet set = 0;
  for (size_t i = count; i-- > 0;) {
    set |= below[i];
    Node& node = nodes_[path[begins[i] + 1]];
    // The first text through a node is the one that made it.
    if (node.characters == 0) node.classes = 0;
    node.classes |= set;
    node.characters = std::max(node.characters, static_cast<uint16_t>(count - i));
  }
}

// What free text takes, and what words do; each also of few characters, for where there is no room
// for more.
void Vocabulary::build_slices() {
  ClassSet words = class_of('a') | class_of('g') | class_of('A') | class_of('G') | class_of('0') |
                   class_of(' ');
  for (const WideClass& wide : wide_classes()) words |= wide.set;
  words &= ~class_of(0x2028);
  ClassSet quotable = words;
  for (uint32_t code = '!'; code <= '~'; ++code) quotable |= class_of(code);
  quotable &= ~(class_of('"') | class_of('\\'));
  for (const ClassSet classes : {quotable, words}) {
    for (const uint32_t characters : {uint32_t{kTextBytesMax}, 16U, 8U, 4U}) {
      slices_.push_back({.classes = classes,
                         .characters = characters,
                         .bit = static_cast<uint8_t>(1U << slices_.size()),
                         .count = 0,
                         .bits = std::vector<uint64_t>((texts_.size() + 63) / 64)});
    }
  }
  // For each slice, how many of the first tokens it lacks.
  std::vector<std::vector<uint32_t>> lacking(slices_.size(), std::vector<uint32_t>{0});
  for (const int32_t id : token_ids_) {
    const auto token = static_cast<size_t>(id);
    const std::string_view text = texts_[token];
    uint32_t characters = 0;
    ClassSet classes = 0;
    for (size_t at = 0; at < text.size(); ++characters) {
      const ClassedCharacter next = character_at(text, at);
      classes |= next.set;
      at += next.bytes;
    }
    for (size_t i = 0; i < slices_.size(); ++i) {
      Slice& slice = slices_[i];
      const bool within = (classes & ~slice.classes) == 0 && characters <= slice.characters;
      lacking[i].push_back(lacking[i].back() + (within ? 0 : 1));
      if (!within) continue;
      slice.bits[token / 64] |= uint64_t{1} << (token % 64);
      ++slice.count;
    }
  }
  for (uint32_t at = 0; at < node_count(); ++at) {
    Node& node = nodes_[at];
    const uint32_t end = nodes_[node.after].first_token;
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (lacking[i][node.first_token] == lacking[i][end]) node.slices |= slices_[i].bit;
    }
  }
}

const Vocabulary::Slice* Vocabulary::slice_within(ClassSet classes, uint32_t characters) const {
  const Slice* best = nullptr;
  for (const Slice& slice : slices_) {
    // A run beyond the longest text is one for all.
    const bool long_enough = characters >= std::min(slice.characters, longest_);
    if ((slice.classes & ~classes) != 0 || !long_enough) continue;
    if (best == nullptr || slice.count > best->count) best = &slice;
  }
  return best;
}

std::shared_ptr<const Vocabulary> Vocabulary::of(const Tokenizer& tokenizer) {
  const Vocab& vocab = tokenizer.vocab();
  std::vector<std::string> texts(static_cast<size_t>(vocab.size()));
  for (int32_t id = 0; id < vocab.size(); ++id) {
    const bool silent = vocab.is_control(id) || vocab.type(id) == TokenType::unused;
    if (silent) continue;
    // After any token of plain text: in the middle of the answer.
    texts[static_cast<size_t>(id)] = tokenizer.piece(id, id);
  }
  return std::make_shared<Vocabulary>(std::move(texts));
}

}  // namespace strata::grammar
