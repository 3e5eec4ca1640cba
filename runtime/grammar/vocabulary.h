// Vocabulary: the bytes of all tokens as one tree, laid out in the order of a walk.
//
// A mask is found by walking an automaton and this tree together: where a byte does not fit, all
// tokens that go on from there are skipped at once. Nodes lie in preorder in plain arrays, so the
// walk reads memory from front to back.
//
// Threads: immutable; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/grammar/char_class.h"
#include "runtime/text/tokenizer.h"

namespace strata::grammar {

class Vocabulary {
 public:
  // The text of each token id; an empty text matches nothing and is in no mask.
  explicit Vocabulary(std::vector<std::string> texts);
  // Control, unknown and unused tokens have no text here: no grammar asks for them, and an answer
  // shows nothing of them.
  static std::shared_ptr<const Vocabulary> of(const Tokenizer& tokenizer);

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  const std::string& text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  // Bytes of the longest text.
  uint32_t longest() const { return longest_; }
  // The ids of texts that begin with a space, ascending.
  std::span<const int32_t> with_first_space() const { return with_first_space_; }

  // One byte of the tree. Read through node() where several of these are wanted.
  struct Node {
    // Of a character's first byte whose path from the root spells whole characters: the classes of
    // that character and of all that may follow it below. Else kBrokenClass.
    ClassSet classes = kBrokenClass;
    uint32_t after = 0;        // the first node that is not below this one
    uint32_t first_token = 0;  // of those whose text ends here or below, in the tree's order
    uint16_t depth = 0;
    uint16_t characters = 0;  // as with `classes`: the most of them on one way down
    uint8_t byte = 0;
    uint8_t slices = 0;  // bit i: slice i holds all tokens from here on
  };
  // Node 0 is the root, of no byte and depth 0.
  uint32_t node_count() const { return static_cast<uint32_t>(nodes_.size() - 1); }
  const Node& node(uint32_t node) const { return nodes_[node]; }
  uint8_t byte(uint32_t node) const { return nodes_[node].byte; }
  uint32_t depth(uint32_t node) const { return nodes_[node].depth; }
  // The first node that is not below this one.
  uint32_t after(uint32_t node) const { return nodes_[node].after; }
  // Tokens whose text ends here.
  std::span<const int32_t> tokens(uint32_t node) const {
    return tokens_between(nodes_[node].first_token, nodes_[node + 1].first_token);
  }
  // Tokens whose text ends here or below.
  std::span<const int32_t> tokens_from(uint32_t node) const {
    return tokens_between(nodes_[node].first_token, nodes_[nodes_[node].after].first_token);
  }

  // All tokens of some classes' characters, as bits: where a run of these is free (free_runs.h),
  // they need not be taken one by one.
  struct Slice {
    ClassSet classes = 0;
    uint32_t characters = 0;  // at most
    uint8_t bit = 0;          // of Node::slices
    size_t count = 0;
    std::vector<uint64_t> bits;
  };
  // The largest one within the limits; none if nullptr.
  const Slice* slice_within(ClassSet classes, uint32_t characters) const;

 private:
  std::span<const int32_t> tokens_between(uint32_t first, uint32_t end) const {
    return std::span(token_ids_).subspan(first, end - first);
  }
  void add_classes(std::string_view text, std::span<const uint32_t> path);
  void build_slices();

  std::vector<std::string> texts_;
  uint32_t longest_ = 0;
  std::vector<int32_t> with_first_space_;
  std::vector<Node> nodes_;  // and one that is behind all
  std::vector<int32_t> token_ids_;
  std::vector<Slice> slices_;
};

}  // namespace strata::grammar
