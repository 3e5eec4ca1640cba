// FreeRuns: for a state of a Pda, characters that it takes in any order, and how many of them.
//
// Inside a string nearly every character leads back to the same state: whatever token holds only
// such characters fits, and a walk over the vocabulary need not look at it byte by byte. What is
// said here is certain but not complete: a state may take more than its run.
//
//   [a-z0-9-]{1,63}, after three      classes a-z, 0-9, '-'; 60 characters
//   "...", at most 100 characters     all classes but '"', '\' and controls; as many as the
//                                     register leaves
//
// Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/grammar/char_class.h"
#include "runtime/grammar/pda.h"
#include "runtime/grammar/registers.h"

namespace strata::grammar {

class FreeRuns {
 public:
  struct Run {
    ClassSet classes = 0;     // 0: nothing is known
    uint32_t characters = 0;  // this many of the classes' at least, in any order
    // After these none of the classes' can come, and the rule cannot have ended before.
    bool is_exact = false;
    bool operator==(const Run&) const = default;
  };

  // Longer runs than `characters_max` are as good as endless ones.
  FreeRuns(std::shared_ptr<const Pda> pda, uint32_t characters_max);

  // With a register of that state in `registers`, a table of the same Pda.
  Run of(StateId state, uint32_t reg, Registers& registers);
  // Classes of all characters that can begin here; more, where that is not clear.
  ClassSet possible(StateId state, uint32_t reg, Registers& registers) const;

 private:
  // What one character does.
  struct Steps {
    struct Target {
      StateId state = 0;
      ClassSet classes = 0;  // some of whose characters lead there
    };
    ClassSet classes = 0;  // all of whose characters are taken
    std::vector<Target> targets;
    OpId count = kNoOp;        // a counter that a character may raise by one
    bool all_count = true;     // each of them does
    std::vector<OpId> guards;  // tested within a character
  };
  struct Known {
    Run run;                         // if the counter has room and no guard refuses
    bool ends_with_counter = false;  // exactly
    OpId count = kNoOp;
    std::vector<OpId> guards;
  };

  struct Reached {
    StateId state = 0;
    uint32_t distance = 0;  // in characters
  };
  struct Exploration {
    Known known;
    std::vector<Reached> reached;  // ascending distances
    bool was_cut = false;          // there is more than was looked at
    bool is_closed = true;         // the classes lead nowhere else: the run has no end
  };

  const Steps& steps(StateId state);
  void look_at_ascii(const Pda::State& state, Steps& steps);
  bool takes(const Pda::State& state, const ByteSequence& sequence, uint32_t at, ClassSet set,
             Steps& steps);
  bool reaches(StateId target, ClassSet set, Steps& steps) const;
  bool allows_op(const Pda::Edge& edge, Steps& steps) const;
  ClassSet lasting(StateId state);
  void find_run(StateId state);
  bool goes_one_way(StateId state, ClassSet classes);
  Exploration explore(StateId state, ClassSet classes, size_t states_max);

  const std::shared_ptr<const Pda> pda_;
  const uint32_t characters_max_;
  // By state; nullptr where not yet looked at.
  std::vector<std::unique_ptr<Steps>> steps_;
  std::vector<std::unique_ptr<Known>> known_;
  std::vector<uint32_t> marks_;  // of the exploration under way
  uint32_t round_ = 0;
  bool may_explore_far_ = true;
};

}  // namespace strata::grammar
