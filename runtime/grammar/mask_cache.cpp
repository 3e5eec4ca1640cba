#include "runtime/grammar/mask_cache.h"

#include <algorithm>
#include <bit>

namespace strata::grammar {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;

// No run has no characters of all classes.
constexpr FreeRuns::Run kUnknownRun{~ClassSet{0}, 0};

uint64_t key_of(StateId state, uint32_t reg) { return (uint64_t{state} << 32) | reg; }

}  // namespace

MaskCache::MaskCache(std::shared_ptr<StateSpace> space,
                     std::shared_ptr<const Vocabulary> vocabulary)
    : space_(std::move(space)),
      vocabulary_(std::move(vocabulary)),
      free_runs_(space_->shared_pda(), vocabulary_->longest()),
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
  const SituationId from = space_->alone(state, reg);
  const FreeRuns::Run run = run_of(from);
  const Vocabulary::Slice* slice = vocabulary_->slice_within(run.classes, run.characters);
  (void)walk(from, 0, slice, layer);
  const LayerId id = add(std::move(layer), slice);
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
    const size_t index = layer.ends.size();
    // What ends with the rule above ends this one too, if it may.
    if (space_->ends(from)) layer.ends.push_back(node);
    const size_t below = vocabulary_->tokens_from(node).size() - vocabulary_->tokens(node).size();
    if (walk(from, node, nullptr, layer) == below) layer.ends.resize(index);
  }
  const LayerId id = add(std::move(layer), nullptr);
  layers_[above].below.emplace(key_of(state, reg), id);
  return id;
}

// All tokens below the node whose bytes from there on fit after `from`, but those of the slice, which
// all fit. How many fit.
size_t MaskCache::walk(SituationId from, uint32_t node, const Vocabulary::Slice* slice,
                       Layer& layer) {
  const Vocabulary& vocabulary = *vocabulary_;
  const uint32_t base = vocabulary.depth(node);
  const uint32_t end = vocabulary.after(node);
  const uint8_t slice_bit = slice != nullptr ? slice->bit : 0;
  size_t fit = 0;
  path_[0] = {from, run_of(from)};
  for (uint32_t at = node + 1; at < end;) {
    const Vocabulary::Node& here = vocabulary.node(at);
    if (!open_ends_.empty()) close_ends(at, fit, layer);
    const uint32_t depth = here.depth - base;
    const Place& place = path_[depth - 1];
    if ((here.classes & ~place.run.classes) == 0 && here.characters <= place.run.characters) {
      const std::span<const int32_t> tokens = vocabulary.tokens_from(at);
      fit += tokens.size();
      if ((here.slices & slice_bit) == 0) {
        layer.tokens.insert(layer.tokens.end(), tokens.begin(), tokens.end());
      }
      at = here.after;
      continue;
    }
    const SituationId next = space_->step_cached(place.situation, here.byte);
    if (next == kDead) {
      at = here.after;
      continue;
    }
    const std::span<const int32_t> tokens = vocabulary.tokens(at);
    layer.tokens.insert(layer.tokens.end(), tokens.begin(), tokens.end());
    fit += tokens.size();
    ++at;
    if (at == here.after) continue;
    path_[depth] = {next, run_of(next)};
    if (!space_->ends(next)) continue;
    const size_t below = vocabulary.tokens_from(at - 1).size() - tokens.size();
    open_ends_.push_back({layer.ends.size(), here.after, fit, below});
    layer.ends.push_back(at - 1);
  }
  close_ends(end, fit, layer);
  return fit;
}

// Where all tokens below an end fit, it does not matter, nor do those below it.
void MaskCache::close_ends(uint32_t at, size_t fit, Layer& layer) {
  for (; !open_ends_.empty() && open_ends_.back().after <= at; open_ends_.pop_back()) {
    const OpenEnd& end = open_ends_.back();
    if (fit - end.fit_before == end.below) layer.ends.resize(end.index);
  }
}

// The longest run of those that the configurations have: it does for all of them.
FreeRuns::Run MaskCache::run_of(SituationId situation) {
  if (situation >= runs_.size()) runs_.resize(situation + situation / 2 + 64, kUnknownRun);
  FreeRuns::Run& best = runs_[situation];
  if (best != kUnknownRun) return best;
  best = {};
  for (const Configuration& c : space_->configurations(situation)) {
    const FreeRuns::Run run = free_runs_.of(c.state, c.reg, space_->registers());
    const int more = std::popcount(run.classes) - std::popcount(best.classes);
    if (more > 0 || (more == 0 && run.characters > best.characters)) best = run;
  }
  return best;
}

// Few tokens stay a list, many become bits.
MaskCache::LayerId MaskCache::add(Layer layer, const Vocabulary::Slice* slice) {
  const size_t words = mask_.words().size();
  if (slice != nullptr || layer.tokens.size() > words) {
    if (slice != nullptr) layer.bits = slice->bits;
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
