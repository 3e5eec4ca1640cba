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

// The tree in preorder, as texts that are sorted make it.
struct Vocabulary::Draft {
  struct Entry {
    ClassSet classes = kBrokenClass;
    uint32_t after = 0;  // the first entry that is not below this one
    uint32_t first_token = 0;
    uint32_t characters = 0;
    uint8_t byte = 0;
  };
  std::vector<Entry> entries = std::vector<Entry>(1);
  std::vector<uint32_t> path = {0};  // of the last text

  void close_down_to(size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      entries[path.back()].after = static_cast<uint32_t>(entries.size());
    }
  }
  void add(std::string_view text, size_t shared, uint32_t token);
  void add_classes(std::string_view text);
};

// `shared` bytes of the text are those of the last one.
void Vocabulary::Draft::add(std::string_view text, size_t shared, uint32_t token) {
  close_down_to(shared);
  for (size_t depth = shared; depth < text.size(); ++depth) {
    path.push_back(static_cast<uint32_t>(entries.size()));
    Entry& entry = entries.emplace_back();
    entry.first_token = token;
    entry.byte = static_cast<uint8_t>(text[depth]);
  }
  add_classes(text);
}

// Tells the first bytes of the last text's characters what stands from there on.
void Vocabulary::Draft::add_classes(std::string_view text) {
  std::vector<std::pair<size_t, ClassSet>> characters;
  for (size_t at = 0; at < text.size();) {
    const ClassedCharacter next = character_at(text, at);
    characters.emplace_back(at, next.set);
    at += next.bytes;
  }
  ClassSet set = 0;
  for (size_t i = characters.size(); i-- > 0;) {
    set |= characters[i].second;
    Entry& entry = entries[path[characters[i].first + 1]];
    if (entry.characters == 0) entry.classes = 0;  // the text that made it
    entry.classes |= set;
    entry.characters = std::max(entry.characters, static_cast<uint32_t>(characters.size() - i));
  }
}

Vocabulary::Vocabulary(std::vector<std::string> texts, std::vector<ControlToken> controls)
    : texts_(std::move(texts)), controls_(std::move(controls)) {
  for (int32_t id = 0; id < size(); ++id) {
    const std::string& text = texts_[static_cast<size_t>(id)];
    if (text.empty() || text.size() > kTextBytesMax) continue;
    token_ids_.push_back(id);
    longest_ = std::max(longest_, static_cast<uint32_t>(text.size()));
    if (text[0] == ' ') with_first_space_.push_back(id);
  }
  std::stable_sort(token_ids_.begin(), token_ids_.end(), [this](int32_t a, int32_t b) {
    return texts_[static_cast<size_t>(a)] < texts_[static_cast<size_t>(b)];
  });
  Draft draft;
  std::string_view before;
  for (size_t i = 0; i < token_ids_.size(); ++i) {
    const std::string_view text = texts_[static_cast<size_t>(token_ids_[i])];
    const auto common = std::mismatch(before.begin(), before.end(), text.begin(), text.end());
    draft.add(text, static_cast<size_t>(common.first - before.begin()), static_cast<uint32_t>(i));
    before = text;
  }
  draft.close_down_to(0);
  draft.entries[0].after = static_cast<uint32_t>(draft.entries.size());
  lay_out(draft);
  build_slices();
}

void Vocabulary::lay_out(const Draft& draft) {
  struct Place {
    uint32_t entry;
    uint32_t node;
  };
  nodes_.resize(1);
  nodes_[0].token_end = static_cast<uint32_t>(token_ids_.size());
  nodes_[0].is_last = 1;
  std::vector<Place> work = {{0, 0}};
  while (!work.empty()) {
    const Place parent = work.back();
    work.pop_back();
    const uint32_t end = draft.entries[parent.entry].after;
    const auto first = static_cast<uint32_t>(nodes_.size());
    const size_t first_work = work.size();
    for (uint32_t at = parent.entry + 1; at < end; at = draft.entries[at].after) {
      const Draft::Entry& entry = draft.entries[at];
      const bool is_last = entry.after == end;
      work.push_back({at, static_cast<uint32_t>(nodes_.size())});
      Node& node = nodes_.emplace_back();
      constexpr uint32_t kCharactersMax = 255;
      node.classes = entry.characters > kCharactersMax ? kBrokenClass : entry.classes;
      node.characters = static_cast<uint8_t>(std::min(entry.characters, kCharactersMax));
      node.first_token = entry.first_token;
      node.token_end =
          is_last ? nodes_[parent.node].token_end : draft.entries[entry.after].first_token;
      node.byte = entry.byte;
      node.is_last = is_last ? 1 : 0;
    }
    Node& above = nodes_[parent.node];
    const bool has_children = nodes_.size() > first;
    if (has_children) above.first_child = first;
    const uint32_t own_end = has_children ? nodes_[first].first_token : above.token_end;
    above.own_tokens = std::min<uint32_t>(own_end - above.first_token, kManyTokens) & 0x7F;
    // The first child's own children come next.
    std::reverse(work.begin() + static_cast<std::ptrdiff_t>(first_work), work.end());
  }
}

// What free text takes, and what words do; each also of few characters, for where there is no room
// for more.
void Vocabulary::build_slices() {
  ClassSet words =
      class_of('a') | class_of('g') | class_of('A') | class_of('G') | class_of('0') | class_of(' ');
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
    token_characters_.push_back(static_cast<uint16_t>(characters));
    for (size_t i = 0; i < slices_.size(); ++i) {
      Slice& slice = slices_[i];
      const bool within = (classes & ~slice.classes) == 0 && characters <= slice.characters;
      lacking[i].push_back(lacking[i].back() + (within ? 0 : 1));
      if (!within) continue;
      slice.bits[token / 64] |= uint64_t{1} << (token % 64);
      ++slice.count;
    }
  }
  for (Node& node : nodes_) {
    for (size_t i = 0; i < slices_.size(); ++i) {
      if (lacking[i][node.first_token] == lacking[i][node.token_end]) node.slices |= slices_[i].bit;
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
