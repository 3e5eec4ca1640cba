// Regular expressions over code points, with calls of named rules among them: what every front end
// (regular expressions, GBNF, formats) parses into, and what compile() makes an automaton of.
//
// Expressions live in a pool and name each other by index, so that nothing here is recursive.
// Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/char_dfa.h"
#include "runtime/grammar/code_set.h"

namespace strata::grammar {

using ExprId = uint32_t;

struct Expr {
  enum class Kind : uint8_t {
    chars,       // one code point of sets[value]
    sequence,    // the children one after another; none: the empty text
    choice,      // one of the children; none: nothing matches
    repeat,      // children[0], min to max times
    call,        // whatever rule `value` matches
    automaton,   // what automata[value] accepts
    text_begin,  // nothing, at the beginning of the text only
    text_end,    // nothing, at its end only
  };
  Kind kind = Kind::sequence;
  uint32_t value = 0;
  uint32_t min = 0;
  uint32_t max = 0;  // kUnbounded: no limit
  std::vector<ExprId> children;
};

class ExprPool {
 public:
  ExprId chars(CodeSet set);
  ExprId sequence(std::vector<ExprId> children);
  ExprId choice(std::vector<ExprId> children);
  ExprId repeat(ExprId child, uint32_t min, uint32_t max);
  ExprId call(uint32_t rule);
  ExprId automaton(CharDfa dfa);
  ExprId assertion(Expr::Kind kind);

  const Expr& at(ExprId id) const { return exprs_[id]; }
  const CodeSet& set(uint32_t index) const { return sets_[index]; }
  const CharDfa& dfa(uint32_t index) const { return automata_[index]; }

 private:
  ExprId add(Expr expr);
  std::vector<Expr> exprs_;
  std::vector<CodeSet> sets_;
  std::vector<CharDfa> automata_;
};

// Groups that a parser has open, the outermost included: what it has read of each.
class ExprGroups {
 public:
  explicit ExprGroups(ExprPool& pool) : pool_(pool) {}

  size_t depth() const { return open_.size(); }
  void open() { open_.emplace_back(); }
  // Requires for all of these: depth() > 0.
  void push(ExprId expr) { open_.back().sequence.push_back(expr); }
  // What was pushed so far is one alternative, what comes now another.
  void next_alternative();
  // The choice between the alternatives; the group around it is the last one again.
  ExprId close();

 private:
  struct Group {
    std::vector<ExprId> alternatives;
    std::vector<ExprId> sequence;  // of the last one
  };

  ExprPool& pool_;
  std::vector<Group> open_;
};

// The smallest automaton found for `root`. With `search`, the expression may stand anywhere in the
// text (as JSON Schema's `pattern` does), else it is the whole text.
// Errors: INVALID_ARGUMENT if it takes more states than kDfaStatesMax or too much work.
Result<CharDfa> compile(const ExprPool& pool, ExprId root, bool search, Budget& budget);

}  // namespace strata::grammar
