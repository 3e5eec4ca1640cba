// Vocabulary: the bytes of all tokens as one tree, laid out in the order of a walk.
//
// A mask is found by walking an automaton and this tree together: where a byte does not fit, all
// tokens that go on from there are skipped at once. The children of a node lie side by side, and
// the tokens of all nodes in the order of their texts, so that a node's are one stretch.
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
  struct ControlToken {
    int32_t id;
    std::string text;
  };

  // The text of each token id; an empty text matches nothing and is in no mask. `controls`: tokens
  // that have none, but may be asked for by name (Pda::markers).
  explicit Vocabulary(std::vector<std::string> texts, std::vector<ControlToken> controls = {});
  // Control, unknown and unused tokens have no text here: no grammar asks for them, and an answer
  // shows nothing of them.
  static std::shared_ptr<const Vocabulary> of(const Tokenizer& tokenizer);

  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  const std::string& text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  std::span<const ControlToken> controls() const { return controls_; }
  // Bytes of the longest text.
  uint32_t longest() const { return longest_; }
  // The ids of texts that begin with a space, ascending.
  std::span<const int32_t> with_first_space() const { return with_first_space_; }

  // One byte of the tree.
  struct Node {
    // Of a character's first byte whose path from the root spells whole characters: the classes of
    // that character and of all that may follow it below. Else kBrokenClass.
    ClassSet classes = kBrokenClass;
    uint32_t first_child = 0;  // ascending bytes; 0: none
    uint32_t first_token = 0;  // the stretch of tokens whose text ends here or below
    uint32_t token_end = 0;
    uint8_t characters = 0;  // as with `classes`: the most of them on one way down
    uint8_t byte = 0;
    uint8_t slices = 0;  // bit i: slice i holds all tokens from here on
    // Tokens whose text ends here, the first ones of the stretch; kManyTokens or more.
    uint8_t own_tokens : 7 = 0;
    uint8_t is_last : 1 = 0;  // child of its parent
  };
  static constexpr uint8_t kManyTokens = 127;
  static_assert(sizeof(Node) == 24);
  // Node 0 is the root, of no byte.
  const Node& node(uint32_t node) const { return nodes_[node]; }
  // Tokens whose text ends at the node.
  std::span<const int32_t> tokens(const Node& node) const {
    uint32_t end = node.first_token + node.own_tokens;
    if (node.own_tokens == kManyTokens) {
      end = node.first_child == 0 ? node.token_end : nodes_[node.first_child].first_token;
    }
    return tokens_between(node.first_token, end);
  }
  // Tokens whose text ends there or below.
  std::span<const int32_t> tokens_from(const Node& node) const {
    return tokens_between(node.first_token, node.token_end);
  }

  // Those of a node's tokens that have at most so many characters. Requires: its classes are known.
  template <typename Take>
  void for_short_tokens(const Node& node, uint32_t characters, Take take) const {
    for (uint32_t i = node.first_token; i < node.token_end; ++i) {
      if (token_characters_[i] <= characters) take(token_ids_[i]);
    }
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
  struct Draft;
  void lay_out(const Draft& draft);
  void build_slices();

  std::vector<std::string> texts_;
  std::vector<ControlToken> controls_;
  uint32_t longest_ = 0;
  std::vector<int32_t> with_first_space_;
  std::vector<Node> nodes_;
  std::vector<int32_t> token_ids_;          // in the order of their texts
  std::vector<uint16_t> token_characters_;  // of each of these
  std::vector<Slice> slices_;
};

}  // namespace strata::grammar
