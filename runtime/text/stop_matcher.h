// Finds stop strings in text that arrives in pieces, by one automaton over all of them.
//
// Text that may turn out to begin a stop string is held back, so what was given out never has to be
// taken back, and the pieces joined do not depend on how the text was cut. The first stop string
// to be complete wins; of several that end at the same byte, the longest. The text ends before it.
//
// Source: Aho, Corasick, "Efficient string matching", CACM 18 (1975).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace strata {

// Threads: externally synchronised; one per answer.
class StopMatcher {
 public:
  // All stop strings of an answer together.
  static constexpr size_t kBytesMax = size_t{64} << 10;

  // Without stop strings everything passes.
  // Errors: INVALID_ARGUMENT "stop string I is empty", or for more than kBytesMax.
  static Result<StopMatcher> create(std::span<const std::string> stops);

  // The text that is certain now. Empty after stopped().
  std::string push(std::string_view text);
  // What is held back, at the end of the answer.
  std::string flush();

  bool stopped() const { return stop_index_ >= 0; }
  // Which stop string ended the text; -1 if none did.
  int32_t stop_index() const { return stop_index_; }
  size_t held_bytes() const { return held_.size(); }

 private:
  // A prefix of some stop string.
  struct Node {
    std::vector<std::pair<char, int32_t>> next;  // few, so searched in order
    int32_t failure = 0;                         // the longest proper suffix that is a prefix too
    int32_t depth = 0;                           // bytes of the prefix
    int32_t stop = -1;  // the longest stop string that this prefix ends with
    int32_t stop_bytes = 0;
  };

  StopMatcher() = default;
  int32_t child(int32_t node, char byte) const;
  int32_t advance(int32_t node, char byte) const;
  void link_failures();

  std::vector<Node> nodes_{Node{}};
  int32_t state_ = 0;
  std::string held_;
  int32_t stop_index_ = -1;
};

}  // namespace strata
