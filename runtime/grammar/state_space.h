// StateSpace: a Pda made deterministic as far as texts have gone, so that the state of a match is
// one number.
//
// A *configuration* is a state with its register and the stack under it; a *situation* is the set
// of all configurations that the text so far allows, closed under calls and returns. Situations and
// stack nodes are kept once each and never change, so a match is copied by copying a number,
// equal situations of different texts meet, and masks are kept by them (mask_cache.h).
//
// Everything is bounded: configurations of a situation (an ambiguous grammar ends with an error),
// the depth of the stack, and by full() the memory: an owner then starts a new space and carries
// its situation over.
//
// Threads: externally synchronised.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/grammar/number_index.h"
#include "runtime/grammar/pda.h"
#include "runtime/grammar/registers.h"

namespace strata::grammar {

using SituationId = uint32_t;
using NodeId = uint32_t;
inline constexpr SituationId kDead = 0;  // nothing matches
inline constexpr NodeId kBottom = 0;

// Looked at after one byte: those that read on, and those that calls and returns lead through.
inline constexpr size_t kConfigurationsMax = 2000;
inline constexpr uint32_t kStackDepthMax = 20000;

struct Configuration {
  StateId state = 0;
  uint32_t reg = 0;
  NodeId node = kBottom;
  auto operator<=>(const Configuration&) const = default;
};

class StateSpace {
 public:
  explicit StateSpace(std::shared_ptr<const Pda> pda);

  const Pda& pda() const { return *pda_; }
  const std::shared_ptr<const Pda>& shared_pda() const { return pda_; }
  Registers& registers() { return registers_; }

  // Before the text.
  SituationId start();
  // Of one configuration on an empty stack, before its calls and returns are looked at: where
  // a mask's walk begins.
  SituationId alone(StateId state, uint32_t reg);
  // With calls and returns, on an empty stack.
  SituationId closed(StateId state, uint32_t reg);

  // kDead if the byte cannot come; with a reason in failure() if a bound was hit.
  SituationId step(SituationId from, uint8_t byte);
  // The same, remembered: for walks that come by again and again.
  SituationId step_cached(SituationId from, uint8_t byte) {
    const SituationId* const next = situations_[from].next.get();
    return next != nullptr && next[byte] != kUnknown ? next[byte] : step_and_keep(from, byte);
  }

  // The rule at the bottom of the stack may end here: the text is complete.
  bool ends(SituationId id) const { return situations_[id].ends; }
  // Those that read bytes.
  std::span<const Configuration> configurations(SituationId id) const {
    const Situation& situation = situations_[id];
    return std::span(configurations_).subspan(situation.first, situation.count);
  }
  struct Node {
    StateId state = 0;  // to go on in after the call
    uint32_t reg = 0;
    NodeId parent = kBottom;
    uint32_t depth = 0;
  };
  const Node& node(NodeId id) const { return nodes_[id]; }
  // Bit b is set if byte b can come.
  std::vector<bool> next_bytes(SituationId id);

  const Status& failure() const { return failure_; }
  // Configurations looked at since the space was made: what its work has been.
  uint64_t visited() const { return visited_; }
  // More memory than a space should take: time for a new one.
  bool full() const;
  // The situation of this space that means what `id` means in `other`, a space of the same Pda.
  SituationId adopt(SituationId id, const StateSpace& other);

 private:
  struct Situation {
    uint64_t first = 0;  // in configurations_
    uint32_t count = 0;
    bool ends = false;
    std::unique_ptr<SituationId[]> next;  // {256}, kUnknown where not yet looked at
  };

  static constexpr SituationId kUnknown = 0xFFFFFFFF;

  SituationId step_and_keep(SituationId from, uint8_t byte);
  void begin();
  void visit(const Configuration& configuration);
  SituationId close();
  SituationId intern(bool ends);
  NodeId push(StateId state, uint32_t reg, NodeId parent);

  std::shared_ptr<const Pda> pda_;
  Registers registers_;
  std::vector<Node> nodes_;
  NumberIndex node_numbers_;
  std::vector<Configuration> configurations_;
  std::vector<Situation> situations_;
  NumberIndex situation_numbers_;
  size_t tables_ = 0;
  uint64_t visited_ = 0;
  Status failure_;

  // Of the last step: bytes around the one it read that do the same.
  uint8_t same_first_ = 0;
  uint8_t same_last_ = 0;

  // Of the closure under way.
  std::vector<Configuration> work_;     // visited, in this order
  std::vector<Configuration> readers_;  // those with bytes to read
  std::vector<uint32_t> marks_;         // open addressing over work_: an index, if of this round
  std::vector<uint32_t> mark_rounds_;   // the round that each mark is of
  uint32_t round_ = 0;
};

}  // namespace strata::grammar
