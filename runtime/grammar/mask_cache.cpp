#include "runtime/grammar/mask_cache.h"

#include <algorithm>
#include <bit>

namespace strata::grammar {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20;
// Configurations of a situation that are looked at one by one. A schema has a few; of an ambiguous
// grammar's hundreds, each has layers that no other situation shares.
constexpr size_t kLayeredMax = 8;
// Nor is a layer made that would go on from more ends than these: each is a walk of its own.
constexpr size_t kEndsMax = 2000;
// Configurations that one mask may look at: some tenths of a second, a thousand times the usual.
constexpr uint64_t kWorkMax = 4'000'000;

// No run has no characters of all classes.
constexpr FreeRuns::Run kUnknown{.classes = ~ClassSet{0}};

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

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
    whole_layers_.clear();
    shown_.clear();
    bytes_ = 0;
    mask_.clear();
  }
  failure_ = ok_status();
  work_limit_ = space_->visited() + kWorkMax;
  wanted_.clear();
  if (space_->configurations(situation).size() > kLayeredMax || !find_layers(situation)) {
    wanted_.assign(1, whole_layer(situation));
  }
  if (!failure_.ok()) {
    mask_.clear();
    shown_.clear();
    return mask_;
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

// False where the situation is better walked as a whole.
bool MaskCache::find_layers(SituationId situation) {
  // Copied: walks make new situations, which moves the old ones.
  const std::span<const Configuration> now = space_->configurations(situation);
  const std::vector<Configuration> configurations(now.begin(), now.end());
  for (const Configuration& c : configurations) {
    LayerId layer = top_layer(c.state, c.reg);
    wanted_.push_back(layer);
    for (NodeId node = c.node; node != kBottom && !layers_[layer].ends.empty();) {
      if (layers_[layer].ends.size() > kEndsMax) return false;
      const StateSpace::Node frame = space_->node(node);
      layer = layer_below(layer, frame.state, frame.reg);
      wanted_.push_back(layer);
      node = frame.parent;
    }
    if (!failure_.ok()) break;
  }
  return true;
}

// All of the situation, with its stacks.
MaskCache::LayerId MaskCache::whole_layer(SituationId situation) {
  const auto known = whole_layers_.find(situation);
  if (known != whole_layers_.end()) return known->second;
  const FreeRuns::Run run = outlook(situation).run;
  const Vocabulary::Slice* slice = vocabulary_->slice_within(run.classes, run.characters);
  (void)walk(situation, {}, slice);
  ends_.clear();  // of the whole text: nothing waits below
  const LayerId id = add_found(slice);
  if (failure_.ok()) whole_layers_.emplace(situation, id);
  return id;
}

MaskCache::LayerId MaskCache::top_layer(StateId state, uint32_t reg) {
  const uint32_t control = space_->pda().states[state].control;
  reg = space_->registers().canonical(control, reg, vocabulary_->longest());
  if (const auto known = top_layers_.find(key_of(state, reg)); known != top_layers_.end()) {
    return known->second;
  }
  const SituationId from = space_->alone(state, reg);
  const FreeRuns::Run run = outlook(from).run;
  const Vocabulary::Slice* slice = vocabulary_->slice_within(run.classes, run.characters);
  (void)walk(from, {}, slice);
  const LayerId id = add_found(slice);
  if (failure_.ok()) top_layers_.emplace(key_of(state, reg), id);
  return id;
}

MaskCache::LayerId MaskCache::layer_below(LayerId above, StateId state, uint32_t reg) {
  const uint32_t control = space_->pda().states[state].control;
  reg = space_->registers().canonical(control, reg, vocabulary_->longest());
  const auto& known = layers_[above].below;
  if (const auto entry = known.find(key_of(state, reg)); entry != known.end()) return entry->second;
  const SituationId from = space_->closed(state, reg);
  for (const End& end : layers_[above].ends) {
    if (!failure_.ok()) break;
    const size_t index = ends_.size();
    // What ends with the rule above ends this one too, if it may.
    if (space_->ends(from)) ends_.push_back(end);
    const Vocabulary::Node& node = vocabulary_->node(end.node);
    const size_t below = vocabulary_->tokens_from(node).size() - vocabulary_->tokens(node).size();
    if (walk(from, end, nullptr) == below) ends_.resize(index);
  }
  const LayerId id = add_found(nullptr);
  if (failure_.ok()) layers_[above].below.emplace(key_of(state, reg), id);
  return id;
}

// All tokens below a node whose bytes from there on fit after `from`, but those of the slice, which
// all fit. How many fit.
size_t MaskCache::walk(SituationId from, End below, const Vocabulary::Slice* slice) {
  const Vocabulary& vocabulary = *vocabulary_;
  const uint8_t slice_bit = slice != nullptr ? slice->bit : 0;
  size_t fit = 0;
  path_[0] = {.situation = from,
              .run = outlook(from).run,
              .next = vocabulary.node(below.node).first_child,
              .characters = below.characters};
  for (size_t depth = 0;;) {
    Place& place = path_[depth];
    if (place.next == 0) {
      // Where all tokens below an end fit, it does not matter, nor do those further below.
      if (place.may_end && fit - place.fit_before == place.below) ends_.resize(place.end_index);
      if (depth-- == 0) return fit;
      continue;
    }
    const uint32_t at = place.next;
    const Vocabulary::Node& here = vocabulary.node(at);
    place.next = here.is_last ? 0 : at + 1;
    if ((here.classes & ~place.run.classes) == 0) {
      if (here.characters <= place.run.characters) {
        const std::span<const int32_t> tokens = vocabulary.tokens_from(here);
        fit += tokens.size();
        if ((here.slices & slice_bit) != 0) continue;
        fitting_.insert(fitting_.end(), tokens.begin(), tokens.end());
        continue;
      }
      if (place.run.is_exact) {
        const size_t before = fitting_.size();
        vocabulary.for_short_tokens(here, place.characters + place.run.characters,
                                    [this](int32_t token) { fitting_.push_back(token); });
        fit += fitting_.size() - before;
        continue;
      }
    }
    const SituationId next = space_->step_cached(place.situation, here.byte);
    if (space_->visited() > work_limit_) {
      failure_ = resource_exhausted(
          "the grammar is too ambiguous: what may come next takes too much work to find",
          "give alternatives that begin alike one common beginning");
      return fit;
    }
    if (next == kDead) continue;
    const std::span<const int32_t> tokens = vocabulary.tokens(here);
    fitting_.insert(fitting_.end(), tokens.begin(), tokens.end());
    fit += tokens.size();
    if (here.first_child == 0) continue;
    const bool may_end = space_->ends(next);
    const size_t end_index = ends_.size();
    const uint32_t characters = place.characters + (is_continuation(here.byte) ? 0 : 1);
    if (may_end) ends_.push_back({at, characters});
    const Outlook& ahead = outlook(next);
    // The classes are those of the node's own character too, which does no harm.
    const bool can_go_on =
        (here.classes & kBrokenClass) != 0 || (here.classes & ahead.possible) != 0;
    if (!can_go_on) continue;
    path_[++depth] = {.situation = next,
                      .run = ahead.run,
                      .next = here.first_child,
                      .characters = characters,
                      .may_end = may_end,
                      .end_index = end_index,
                      .fit_before = fit,
                      .below = vocabulary.tokens_from(here).size() - tokens.size()};
  }
}

const MaskCache::Outlook& MaskCache::outlook(SituationId situation) {
  if (situation >= outlooks_.size()) {
    outlooks_.resize(situation + situation / 2 + 64, Outlook{kUnknown, 0});
  }
  Outlook& known = outlooks_[situation];
  if (known.run != kUnknown) return known;
  known = {};
  for (const Configuration& c : space_->configurations(situation)) {
    // The longest run does for all of them.
    const FreeRuns::Run run = free_runs_.of(c.state, c.reg, space_->registers());
    const int more = std::popcount(run.classes) - std::popcount(known.run.classes);
    if (more > 0 || (more == 0 && run.characters > known.run.characters)) known.run = run;
    known.possible |= free_runs_.possible(c.state, c.reg, space_->registers());
  }
  // Another one may go on where this one cannot.
  if (space_->configurations(situation).size() > 1) known.run.is_exact = false;
  return known;
}

// What the walks have found. Few tokens stay a list, many become bits.
MaskCache::LayerId MaskCache::add_found(const Vocabulary::Slice* slice) {
  const size_t words = mask_.words().size();
  Layer layer;
  if (slice != nullptr || fitting_.size() > words) {
    if (slice != nullptr) layer.bits = slice->bits;
    layer.bits.resize(words);
    for (const int32_t token : fitting_) {
      layer.bits[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64);
    }
  } else {
    layer.tokens = fitting_;
  }
  layer.ends = ends_;
  fitting_.clear();
  ends_.clear();
  bytes_ += sizeof(Layer) + 64 + layer.tokens.size() * 4 + layer.bits.size() * 8 +
            layer.ends.size() * sizeof(End);
  layers_.push_back(std::move(layer));
  return static_cast<LayerId>(layers_.size() - 1);
}

}  // namespace strata::grammar
