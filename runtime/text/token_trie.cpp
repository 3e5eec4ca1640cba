#include "runtime/text/token_trie.h"

namespace strata {

void TokenTrie::add(std::string_view text, int32_t id) {
  if (text.empty()) return;
  const auto new_node = [this](char byte) {
    nodes_.push_back({.byte = byte});
    return static_cast<int32_t>(nodes_.size() - 1);
  };
  int32_t& root = roots_[static_cast<unsigned char>(text[0])];
  if (root < 0) root = new_node(text[0]);
  int32_t node = root;
  for (const char byte : text.substr(1)) {
    int32_t next = child(nodes_[static_cast<size_t>(node)], byte);
    if (next < 0) {
      next = new_node(byte);
      Node& parent = nodes_[static_cast<size_t>(node)];
      nodes_[static_cast<size_t>(next)].next_sibling = parent.first_child;
      parent.first_child = next;
    }
    node = next;
  }
  nodes_[static_cast<size_t>(node)].id = id;
}

}  // namespace strata
