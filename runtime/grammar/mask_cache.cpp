#include "runtime/grammar/mask_cache.h"

#include <algorithm>

namespace strata::grammar {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;

uint64_t key_of(StateId state, uint32_t reg) { return (uint64_t{state} << 32) | reg; }

}  // namespace

MaskCache::MaskCache(std::shared_ptr<StateSpace> space,
                     std::shared_ptr<const Vocabulary> vocabulary)
    : space_(std::move(space)),
      vocabulary_(std::move(vocabulary)),
      path_(size_t{vocabulary_->longest()} + 1),
      mask_(vocabulary_->size()) {}

const TokenMask& MaskCache::mask(SituationId situation) {
  if (bytes_ > kBytesMax) {
    layers_.clear();
    top_layers_.clear();
    shown_.clear();
    bytes_ = 0;
    mask_.clear();
  }
  wanted_.clear();
  // Copied: walks make new situations, which moves the old ones.
  const std::span<const Configuration> now = space_->configurations(situation);
  const std::vector<Configuration> configurations(now.begin(), now.end());
  for (const Configuration& c : configurations) {
    LayerId layer = top_layer(c.state, c.reg);
    wanted_.push_back(layer);
    for (NodeId node = c.node; node != kBottom && !layers_[layer].ends.empty();) {
      const StateSpace::Node frame = space_->node(node);
      layer = layer_below(layer, frame.state, frame.reg);
      wanted_.push_back(layer);
      node = frame.parent;
    }
  }
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
  if (wanted_ == shown_) return mask_;
  mask_.clear();
  for (const LayerId id : wanted_) {
    const Layer& layer = layers_[id];
    for (size_t i = 0; i < layer.bits.size(); ++i) mask_.words()[i] |= layer.bits[i];
    for (const int32_t token : layer.tokens) mask_.allow(token);
  }
  std::swap(shown_, wanted_);
  return mask_;
}

MaskCache::LayerId MaskCache::top_layer(StateId state, uint32_t reg) {
  const uint32_t control = space_->pda().states[state].control;
  reg = space_->registers().canonical(control, reg, vocabulary_->longest());
  if (const auto known = top_layers_.find(key_of(state, reg)); known != top_layers_.end()) {
    return known->second;
  }
  Layer layer;
  walk(space_->alone(state, reg), 0, layer);
  const LayerId id = add(std::move(layer));
  top_layers_.emplace(key_of(state, reg), id);
  return id;
}

MaskCache::LayerId MaskCache::layer_below(LayerId above, StateId state, uint32_t reg) {
  const uint32_t control = space_->pda().states[state].control;
  reg = space_->registers().canonical(control, reg, vocabulary_->longest());
  const auto& known = layers_[above].below;
  if (const auto entry = known.find(key_of(state, reg)); entry != known.end()) return entry->second;
  Layer layer;
  const SituationId from = space_->closed(state, reg);
  for (const uint32_t node : layers_[above].ends) {
    // What ends with the rule above ends this one too, if it may.
    if (space_->ends(from)) layer.ends.push_back(node);
    walk(from, node, layer);
  }
  const LayerId id = add(std::move(layer));
  layers_[above].below.emplace(key_of(state, reg), id);
  return id;
}

// All tokens below the node whose bytes from there on fit after `from`.
void MaskCache::walk(SituationId from, uint32_t node, Layer& layer) {
  const Vocabulary& vocabulary = *vocabulary_;
  const uint32_t base = vocabulary.depth(node);
  const uint32_t end = vocabulary.after(node);
  path_[0] = from;
  for (uint32_t at = node + 1; at < end;) {
    const uint32_t depth = vocabulary.depth(at) - base;
    const SituationId next = space_->step_cached(path_[depth - 1], vocabulary.byte(at));
    if (next == kDead) {
      at = vocabulary.after(at);
      continue;
    }
    path_[depth] = next;
    const std::span<const int32_t> tokens = vocabulary.tokens(at);
    layer.tokens.insert(layer.tokens.end(), tokens.begin(), tokens.end());
    if (space_->ends(next)) layer.ends.push_back(at);
    ++at;
  }
}

// Few tokens stay a list, many become bits.
MaskCache::LayerId MaskCache::add(Layer layer) {
  const size_t words = mask_.words().size();
  if (layer.tokens.size() > words) {
    layer.bits.resize(words);
    for (const int32_t token : layer.tokens) {
      layer.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
    layer.tokens = {};
  }
  layer.tokens.shrink_to_fit();
  layer.ends.shrink_to_fit();
  bytes_ +=
      sizeof(Layer) + 64 + layer.tokens.size() * 4 + layer.bits.size() * 8 + layer.ends.size() * 4;
  layers_.push_back(std::move(layer));
  return static_cast<LayerId>(layers_.size() - 1);
}

}  // namespace strata::grammar
