// Token texts as a tree of bytes: which tokens begin at a place of a text.
//
// Finds special tokens in a text (special_splitter.h) and the longest piece of a word
// (wordpiece_tokenizer.h) in one walk that ends at the first byte that no token has.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace strata {

// Threads: immutable after the last add(); any thread.
class TokenTrie {
 public:
  TokenTrie() { roots_.fill(-1); }

  // An empty text is ignored; of two equal texts the later one stays.
  void add(std::string_view text, int32_t id);
  bool empty() const { return nodes_.empty(); }

  // Calls visit(length, id) for every token that text begins with, shortest first.
  template <typename Visit>
  void for_each_prefix(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    int32_t node = roots_[static_cast<unsigned char>(text[0])];
    for (size_t length = 1; node >= 0; ++length) {
      const Node& here = nodes_[static_cast<size_t>(node)];
      if (here.id >= 0) visit(length, here.id);
      if (length == text.size()) return;
      node = child(here, text[length]);
    }
  }

 private:
  struct Node {
    char byte;
    int32_t id = -1;  // of the token that ends here
    int32_t first_child = -1;
    int32_t next_sibling = -1;
  };

  int32_t child(const Node& parent, char byte) const {
    int32_t node = parent.first_child;
    while (node >= 0 && nodes_[static_cast<size_t>(node)].byte != byte) {
      node = nodes_[static_cast<size_t>(node)].next_sibling;
    }
    return node;
  }

  std::array<int32_t, 256> roots_;
  std::vector<Node> nodes_;
};

}  // namespace strata
