#include "runtime/text/special_splitter.h"

#include <algorithm>

namespace strata {
namespace {

// The C locale's isspace, which the reference strips by.
bool is_ascii_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

bool overlaps(std::span<const UntrustedRange> ranges, size_t begin, size_t end) {
  const auto range =
      std::upper_bound(ranges.begin(), ranges.end(), begin,
                       [](size_t at, const UntrustedRange& r) { return at < r.end; });
  return range != ranges.end() && range->begin < end;
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocab& vocab) : vocab_(vocab) {
  for (int32_t id = 0; id < vocab.size(); ++id) {
    if (vocab.is_user_defined(id)) user_defined_.add(vocab.text(id), id);
    if (vocab.is_user_defined(id) || vocab.is_control(id)) all_.add(vocab.text(id), id);
  }
}

int32_t SpecialSplitter::token_of_length(std::string_view text, size_t length,
                                         bool parse_special) const {
  int32_t found = -1;
  const TokenTrie& trie = parse_special ? all_ : user_defined_;
  trie.for_each_prefix(text.substr(0, length), [&](size_t match_length, int32_t id) {
    if (match_length == length) found = id;
  });
  return found;
}

std::vector<size_t> SpecialSplitter::lengths_in(std::string_view text, bool parse_special) const {
  std::vector<bool> seen;
  const TokenTrie& trie = parse_special ? all_ : user_defined_;
  if (trie.empty()) return {};
  for (size_t i = 0; i < text.size(); ++i) {
    trie.for_each_prefix(text.substr(i), [&seen](size_t length, int32_t) {
      if (seen.size() <= length) seen.resize(length + 1);
      seen[length] = true;
    });
  }
  std::vector<size_t> lengths;
  for (size_t length = seen.size(); length-- > 1;) {
    if (seen[length]) lengths.push_back(length);
  }
  return lengths;
}

std::vector<TextFragment> SpecialSplitter::split(std::string_view text, bool parse_special,
                                                 std::span<const UntrustedRange> untrusted,
                                                 std::span<const int32_t> barred) const {
  std::vector<TextFragment> fragments;
  if (text.empty()) return fragments;
  fragments.push_back({0, text.size(), -1});
  std::vector<TextFragment> next;
  for (const size_t length : lengths_in(text, parse_special)) {
    next.clear();
    for (const TextFragment& fragment : fragments) {
      if (fragment.token >= 0) {
        next.push_back(fragment);
        continue;
      }
      size_t begin = fragment.begin;
      for (size_t at = begin; at + length <= fragment.end;) {
        int32_t token = token_of_length(text.substr(at), length, parse_special);
        // Almost no place holds a token: only one that does is looked up among the ranges.
        if (token >= 0 && parse_special && overlaps(untrusted, at, at + length)) {
          token = token_of_length(text.substr(at), length, false);
          if (std::binary_search(barred.begin(), barred.end(), token)) token = -1;
        }
        if (token < 0) {
          ++at;
          continue;
        }
        size_t left_end = at;
        if (vocab_.strips_left(token)) {
          while (left_end > begin && is_ascii_space(text[left_end - 1])) --left_end;
        }
        if (left_end > begin) next.push_back({begin, left_end, -1});
        next.push_back({at, at + length, token});
        at += length;
        if (vocab_.strips_right(token)) {
          while (at < fragment.end && is_ascii_space(text[at])) ++at;
        }
        begin = at;
      }
      if (begin < fragment.end) next.push_back({begin, fragment.end, -1});
    }
    fragments.swap(next);
  }
  return fragments;
}

}  // namespace strata
