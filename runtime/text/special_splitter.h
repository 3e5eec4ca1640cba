// Cuts a text at the tokens that stand for themselves before any merging happens.
//
// User-defined tokens always split the text; control tokens only if the caller trusts the text
// (a chat frame, never a user's words). As in the reference, longer tokens are looked for in the
// whole text before shorter ones, each from left to right.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/text/token_trie.h"
#include "runtime/text/vocab.h"

namespace strata {

// Bytes [begin, end) of a text that nobody vouches for: no control token is read from them.
struct UntrustedRange {
  size_t begin;
  size_t end;
};

// Bytes [begin, end) of a text: plain text if token is -1, else that token.
struct TextFragment {
  size_t begin;
  size_t end;
  int32_t token;
};

// Threads: immutable after construction; any thread. The vocabulary must outlive it.
class SpecialSplitter {
 public:
  explicit SpecialSplitter(const Vocab& vocab);

  // In the order of the text; plain fragments are not empty. White space that a token strips is in
  // no fragment.
  // `untrusted`: ascending and apart; control tokens are looked for outside of them only, also
  // where parse_special is set; so are user-defined tokens that are `barred` (ascending).
  std::vector<TextFragment> split(std::string_view text, bool parse_special,
                                  std::span<const UntrustedRange> untrusted = {},
                                  std::span<const int32_t> barred = {}) const;

 private:
  // The token of exactly `length` bytes that text begins with, -1 if there is none.
  int32_t token_of_length(std::string_view text, size_t length, bool parse_special) const;
  // Descending lengths of all tokens that stand anywhere in the text.
  std::vector<size_t> lengths_in(std::string_view text, bool parse_special) const;

  const Vocab& vocab_;
  TokenTrie user_defined_;
  TokenTrie all_;  // user-defined, control and unknown
};

}  // namespace strata
