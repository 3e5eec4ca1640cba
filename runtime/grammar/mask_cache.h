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
// The idea of context-independent tokens: Dong et al., "XGrammar", 2024 (arXiv:2411.15100); of the
// walk over a tree of tokens: llguidance, https://github.com/guidance-ai/llguidance (docs).
//
// Threads: externally synchronised, together with the space.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

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

  // The tokens whose bytes fit after the situation. Valid until the next call.
  const TokenMask& mask(SituationId situation);

 private:
  using LayerId = uint32_t;
  struct Layer {
    std::vector<int32_t> tokens;  // that fit here, if they are few
    std::vector<uint64_t> bits;   // else
    std::vector<uint32_t> ends;   // nodes of the vocabulary where this frame may end
    std::unordered_map<uint64_t, LayerId> below;  // by state and register
  };

  LayerId top_layer(StateId state, uint32_t reg);
  LayerId layer_below(LayerId above, StateId state, uint32_t reg);
  void walk(SituationId from, uint32_t node, Layer& layer);
  LayerId add(Layer layer);

  std::shared_ptr<StateSpace> space_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<Layer> layers_;
  std::unordered_map<uint64_t, LayerId> top_layers_;
  size_t bytes_ = 0;  // of all layers, about

  std::vector<SituationId> path_;  // of the walk: the situation at each depth
  std::vector<LayerId> wanted_;    // the layers of the mask under way, ascending
  std::vector<LayerId> shown_;     // those of mask_
  TokenMask mask_;
};

}  // namespace strata::grammar
