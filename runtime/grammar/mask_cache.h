// MaskCache: which tokens of a vocabulary fit next, found once for each place of a grammar.
//
// What a token can do depends on the state at the top of the stack, and only if it ends that rule
// also on what waits below. So a mask is made of layers:
//
//   state at the top            tokens that fit inside the rule, and where in the tree of tokens
//                               the rule may end ("ab\"" ends a string; what follows is open)
//   + the frame below           of those open ends, the tokens that fit there, and where that ends
//   + the frame below that ...  until nothing is open
//
// Each layer is kept, under its state and register and the layers above it. Registers are taken
// canonical (registers.h), so that the hundredth element of a list is the ninety-ninth. A string of
// free text is the same state in every schema's members, so its large layer is walked once; what
// changes from member to member is the small layer of ends.
//
// A walk passes over what must fit or need not be known: below a node whose characters the state
// takes in any order (free_runs.h) all tokens fit, and a rule's end is of no interest where all
// tokens that go on from there fit anyway. What most states of a string share, the tokens of plain
// text, is kept as bits by the vocabulary.
//
// Where a text can be read in many ways, most of these layers would be looked at once only: the
// situation is then walked as a whole, and its mask kept as one layer.
//
// The idea of context-independent tokens: Dong et al., "XGrammar", 2024 (arXiv:2411.15100); of the
// walk over a tree of tokens: llguidance, https://github.com/guidance-ai/llguidance (docs).
//
// Threads: externally synchronised, together with the space.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/grammar/free_runs.h"
#include "runtime/grammar/matcher.h"
#include "runtime/grammar/state_space.h"
#include "runtime/grammar/vocabulary.h"
#include "runtime/sampling/token_mask.h"

namespace strata::grammar {

class MaskCache {
 public:
  MaskCache(std::shared_ptr<StateSpace> space, std::shared_ptr<const Vocabulary> vocabulary);

  const std::shared_ptr<StateSpace>& space() const { return space_; }
  const std::shared_ptr<const Vocabulary>& vocabulary() const { return vocabulary_; }

  // The tokens whose bytes fit after the situation. Valid until the next call. Empty where that
  // would take too much work, and failure() says so.
  const TokenMask& mask(SituationId situation);
  // Of the last mask. RESOURCE_EXHAUSTED for a grammar that is too ambiguous.
  const Status& failure() const { return failure_; }

 private:
  using LayerId = uint32_t;
  // A node of the vocabulary where a frame may end, with tokens below that may not fit there.
  struct End {
    uint32_t node = 0;
    uint32_t characters = 0;  // from the root
  };
  struct Layer {
    std::vector<int32_t> tokens;  // that fit here, if they are few
    std::vector<uint64_t> bits;   // else
    std::vector<End> ends;
    std::unordered_map<uint64_t, LayerId> below;  // by state and register
  };
  // What is known of a situation before a byte is tried.
  struct Outlook {
    FreeRuns::Run run;
    ClassSet possible = 0;  // no characters but these may come next
  };
  // Where a walk stands: below some node.
  struct Place {
    SituationId situation = kDead;
    FreeRuns::Run run;
    uint32_t next = 0;        // child to look at; 0: none is left
    uint32_t characters = 0;  // from the root
    // If the frame may end at the node: where in the layer that stands, and what had fitted before.
    bool may_end = false;
    size_t end_index = 0;
    size_t fit_before = 0;
    size_t below = 0;  // tokens
  };

  bool find_layers(SituationId situation);
  LayerId whole_layer(SituationId situation);
  LayerId top_layer(StateId state, uint32_t reg);
  LayerId layer_below(LayerId above, StateId state, uint32_t reg);
  size_t walk(SituationId from, End below, const Vocabulary::Slice* slice);
  const Outlook& outlook(SituationId situation);
  LayerId add_found(const Vocabulary::Slice* slice);

  std::shared_ptr<StateSpace> space_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<Layer> layers_;
  std::unordered_map<uint64_t, LayerId> top_layers_;
  std::unordered_map<SituationId, LayerId> whole_layers_;
  size_t bytes_ = 0;  // of all layers, about

  FreeRuns free_runs_;
  std::vector<Outlook> outlooks_;  // by situation; kUnknown where not yet looked at
  std::vector<Place> path_;        // of the walk, by depth
  std::vector<int32_t> fitting_;   // found for the layer under way
  std::vector<End> ends_;          // likewise
  uint64_t work_limit_ = 0;        // of the mask under way, as StateSpace::visited() counts
  Status failure_;
  std::vector<LayerId> wanted_;  // the layers of the mask under way, ascending
  std::vector<LayerId> shown_;   // those of mask_
  TokenMask mask_;
};

}  // namespace strata::grammar
