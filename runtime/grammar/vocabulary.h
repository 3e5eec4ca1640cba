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
#include <vector>

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

  // Node 0 is the root, of no byte and depth 0.
  uint32_t node_count() const { return static_cast<uint32_t>(bytes_.size()); }
  uint8_t byte(uint32_t node) const { return bytes_[node]; }
  uint32_t depth(uint32_t node) const { return depths_[node]; }
  // The first node that is not below this one.
  uint32_t after(uint32_t node) const { return afters_[node]; }
  // Tokens whose text ends here.
  std::span<const int32_t> tokens(uint32_t node) const {
    return std::span(token_ids_)
        .subspan(token_begins_[node], token_begins_[node + 1] - token_begins_[node]);
  }

 private:
  std::vector<std::string> texts_;
  std::vector<ControlToken> controls_;
  uint32_t longest_ = 0;
  std::vector<int32_t> with_first_space_;
  std::vector<uint8_t> bytes_;
  std::vector<uint16_t> depths_;
  std::vector<uint32_t> afters_;
  std::vector<uint32_t> token_begins_;  // {nodes + 1}, into token_ids_
  std::vector<int32_t> token_ids_;
};

}  // namespace strata::grammar
