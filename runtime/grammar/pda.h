// Pda: the byte-level pushdown automaton that every grammar is compiled to.
//
// A rule is a piece of the automaton with a start state and accepting states. A state may read a
// byte, or call a rule and go on elsewhere when that has matched; what waits for a call to end is
// the stack. All calls in flight have a *register*: one small value beside the state. Arrays and
// strings count in it, objects keep the set of members seen so far, so that members come in any
// order, each once, without a state for every subset. Operations on edges read and write it:
//
//   {"name": "x", "age"            state: inside the key automaton of the object's rule
//                     ^            register: {name}; only keys that can still be "age" go on here
//
// State 0 of a rule is reached with register 0: nothing counted, nothing seen.
//
// Threads: immutable once built; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"

namespace strata::grammar {

using StateId = uint32_t;
using RuleId = uint32_t;
using OpId = uint32_t;  // index of Pda::ops
inline constexpr OpId kNoOp = 0;
// As a control's maximum: none.
inline constexpr uint32_t kUnlimited = 0xFFFFFFFF;

inline constexpr size_t kPdaStatesMax = 400000;

// A set of small numbers.
using Bits = std::vector<uint64_t>;

// What a rule's register means.
struct Control {
  enum class Kind : uint8_t { none, counter, object };
  Kind kind = Kind::none;
  uint32_t min = 0;
  uint32_t max = kUnlimited;
  // Objects only. Members known by name are keys 0 to key_count - 1.
  uint32_t key_count = 0;
  Bits required;  // keys
  // Key `first` asks for the keys `second`.
  std::vector<std::pair<uint32_t, Bits>> dependents;
};

// Keys that can still come of a state inside a key.
struct Reach {
  Bits keys;
  bool other = false;  // also a name that is no key
};

// Each refuses where it cannot be.
struct Op {
  enum class Kind : uint8_t {
    none,
    count,      // one more element; refuses beyond max
    enough,     // changes nothing; refuses below min
    key,        // the member `value`; refuses a second one
    other_key,  // a member that is no key; refuses beyond max
    close,      // the object's end; refuses without its required members
    reach,      // changes nothing; refuses if none of reaches[value] may come
  };
  Kind kind = Kind::none;
  uint32_t control = 0;  // index of Pda::controls
  uint32_t value = 0;
};

struct Pda {
  struct Edge {
    uint8_t first = 0;  // inclusive range of bytes
    uint8_t last = 0;
    OpId op = kNoOp;
    StateId target = 0;
  };
  struct Call {
    RuleId rule = 0;
    StateId next = 0;
    OpId op = kNoOp;
  };
  struct State {
    std::vector<Edge> edges;  // ascending, disjoint
    std::vector<Call> calls;
    uint32_t control = 0;
    OpId guard = kNoOp;  // tested before anything else in this state
    bool accepts = false;
  };

  std::vector<State> states;
  std::vector<StateId> rules;  // start states; rule 0 is the whole text
  std::vector<Op> ops = {Op()};
  std::vector<Control> controls = {Control()};
  std::vector<Reach> reaches;
  // The text is JSON, and an object may have members whose names are not known before: equal ones
  // are looked for beside the automaton (key_tracker.h).
  bool tracks_keys = false;
  // Texts of control tokens that the text may hold.
  std::vector<std::string> markers;

  StateId add_state(uint32_t control = 0) {
    states.emplace_back().control = control;
    return static_cast<StateId>(states.size() - 1);
  }
  RuleId add_rule() {
    rules.push_back(add_state());
    return static_cast<RuleId>(rules.size() - 1);
  }
  OpId add_op(Op op) {
    ops.push_back(op);
    return static_cast<OpId>(ops.size() - 1);
  }
  void add_edge(StateId from, uint8_t first, uint8_t last, StateId to, OpId op = kNoOp) {
    states[from].edges.push_back({first, last, op, to});
  }
  void add_edge(StateId from, char byte, StateId to, OpId op = kNoOp) {
    add_edge(from, static_cast<uint8_t>(byte), static_cast<uint8_t>(byte), to, op);
  }
  void add_call(StateId from, RuleId rule, StateId next, OpId op = kNoOp) {
    states[from].calls.push_back({rule, next, op});
  }
};

// Sorts edges, and refuses what could run for ever: a rule that calls itself before it reads a
// byte. Call it once, when all is added. `rule_names` are for the message.
// Errors: INVALID_ARGUMENT for left recursion; RESOURCE_EXHAUSTED above kPdaStatesMax.
Status finish(Pda& pda, const std::vector<std::string>& rule_names);

}  // namespace strata::grammar
