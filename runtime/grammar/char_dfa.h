// CharDfa: a deterministic automaton over code points, and the set operations on what it accepts.
//
// Front ends build and combine these (a pattern and a length and a format: the intersection), and
// only the result becomes bytes (byte_emitter.h). Above the code points, an edge may also carry
// call_letter(r): "here stands whatever rule r matches"; to every operation but the last that is a
// letter like any other.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/code_set.h"

namespace strata::grammar {

// Letters from here on, above every code point, are calls. They touch neither each other nor a code
// point, so that what joins neighbouring letters into one range never joins these.
inline constexpr uint32_t kCallBase = 0x110000;
constexpr uint32_t call_letter(uint32_t rule) { return kCallBase + 1 + 2 * rule; }
constexpr bool is_call(uint32_t letter) { return letter >= kCallBase; }
constexpr uint32_t called_rule(uint32_t letter) { return (letter - kCallBase) / 2; }
inline constexpr uint32_t kNoState = 0xFFFFFFFF;
// As a largest length or count: none.
inline constexpr uint32_t kUnbounded = 0xFFFFFFFF;

// Bounds of one automaton: far above what a schema in use needs, and built in well under a second.
inline constexpr size_t kDfaStatesMax = 20000;
inline constexpr size_t kDfaEdgesMax = 400000;

// How much may be computed for one grammar: the same on every machine, unlike a time limit, so that
// all agree on what is too much. Threads: externally synchronised.
class Budget {
 public:
  // Errors: INVALID_ARGUMENT once all is spent.
  Status spend(size_t work);

 private:
  size_t left_ = 15'000'000;
};

struct CharDfa {
  struct Edge {
    uint32_t first = 0;  // inclusive range of letters
    uint32_t last = 0;
    uint32_t target = 0;
    bool operator==(const Edge&) const = default;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, disjoint
    uint32_t label = 0;       // 0: not accepting. What another label means is the maker's business.
    bool operator==(const State&) const = default;
  };
  // State 0 is the start. None: nothing is accepted.
  std::vector<State> states;

  bool empty() const { return states.empty(); }
  uint32_t step(uint32_t state, uint32_t letter) const;
  // The label after a whole text; 0 for text that is not UTF-8.
  uint32_t match(std::string_view utf8) const;
  bool operator==(const CharDfa&) const = default;
};

// Accepts every text, with label 1.
CharDfa any_text();
// Accepts texts of min to max code points. Requires: max < kDfaStatesMax or kUnbounded.
CharDfa text_of_length(uint32_t min, uint32_t max);
// Text i of the list gets label i + 1. Of equal texts the first counts. Requires: all UTF-8.
CharDfa any_of_texts(std::span<const std::string> texts);

// Drops states from which nothing is accepted, or which are not reached; merges equivalent ones.
void minimise(CharDfa& dfa);

// Runs all automata side by side; `label` gives the label of a state from those of its parts (0
// also for a part that has failed). Minimised. Errors: INVALID_ARGUMENT for too many states.
Result<CharDfa> product(std::span<const CharDfa* const> parts,
                        const std::function<uint32_t(std::span<const uint32_t>)>& label,
                        Budget& budget);

Result<CharDfa> intersection(const CharDfa& a, const CharDfa& b, Budget& budget);
Result<CharDfa> difference(const CharDfa& a, const CharDfa& b, Budget& budget);
Result<CharDfa> unite(const CharDfa& a, const CharDfa& b, Budget& budget);

}  // namespace strata::grammar
