#include "runtime/grammar/constraint.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/grammar/grammar.h"

namespace strata::grammar {
namespace {

std::shared_ptr<MaskCache> new_masks(std::shared_ptr<const Pda> pda,
                                     std::shared_ptr<const Vocabulary> vocabulary) {
  return std::make_shared<MaskCache>(std::make_shared<StateSpace>(std::move(pda)),
                                     std::move(vocabulary));
}

}  // namespace

Constraint::Constraint(std::shared_ptr<MaskCache> masks, bool drops_first_space)
    : masks_(std::move(masks)), matcher_(masks_->space()), drops_first_space_(drops_first_space) {
  const std::vector<std::string>& markers = masks_->space()->pda().markers;
  if (markers.empty()) return;
  for (const Vocabulary::ControlToken& control : masks_->vocabulary()->controls()) {
    if (std::find(markers.begin(), markers.end(), control.text) == markers.end()) continue;
    markers_.push_back(control);
  }
}

// A space that has grown too large is left to those who still use it.
void Constraint::make_room() {
  if (!matcher_.space().full()) return;
  masks_ = new_masks(matcher_.space().shared_pda(), masks_->vocabulary());
  matcher_.move_to(masks_->space());
}

const TokenMask& Constraint::mask(std::span<const int32_t> end_ids) {
  make_room();
  mask_ = masks_->mask(matcher_.situation());
  mask_failure_ = masks_->failure();
  if (is_first_ && drops_first_space_) {
    // The space would not be shown, and a text without it is what the grammar then sees.
    for (const int32_t id : masks_->vocabulary()->with_first_space()) mask_.forbid(id);
  }
  for (const Vocabulary::ControlToken& marker : markers_) {
    Matcher ahead = matcher_;
    if (ahead.accept(marker.text)) mask_.allow(marker.id);
  }
  for (const int32_t id : end_ids) {
    if (id < 0 || id >= mask_.size()) continue;
    if (matcher_.can_end())
      mask_.allow(id);
    else
      mask_.forbid(id);
  }
  return mask_;
}

const std::string& Constraint::text_of(int32_t token) const {
  static const std::string none;
  const Vocabulary& vocabulary = *masks_->vocabulary();
  if (token < 0 || token >= vocabulary.size()) return none;
  for (const Vocabulary::ControlToken& marker : markers_) {
    if (marker.id == token) return marker.text;
  }
  return vocabulary.text(token);
}

bool Constraint::accept(int32_t token) {
  const std::string& text = text_of(token);
  if (text.empty()) return false;
  make_room();
  Matcher ahead = matcher_;
  if (!ahead.accept(text)) {
    // Nothing changed but why. A name that came before is no reason to give up: others fit.
    if (ahead.failure().code() == StatusCode::resource_exhausted) matcher_ = std::move(ahead);
    return false;
  }
  if (!ahead.can_end_name()) return false;
  matcher_ = std::move(ahead);
  is_first_ = false;
  return true;
}

Status Constraint::replay(std::span<const int32_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (accept(tokens[i])) continue;
    return invalid_argument(fmt::format(
        "token {} of the answer, number {}, does not fit the grammar", tokens[i], i + 1));
  }
  return ok_status();
}

std::vector<int32_t> Constraint::forced_tokens(std::span<const int32_t> end_ids, size_t count_max) {
  std::vector<int32_t> forced;
  Constraint ahead = *this;
  while (forced.size() < count_max) {
    const TokenMask& mask = ahead.mask(end_ids);
    if (mask.count() != 1) break;
    const int32_t token = mask.first();
    if (!ahead.accept(token)) break;  // an end id
    forced.push_back(token);
  }
  return forced;
}

Result<std::shared_ptr<MaskCache>> compile_masks(const GrammarSpec& spec,
                                                 std::shared_ptr<const Vocabulary> vocabulary) {
  std::shared_ptr<const Pda> pda = TRY(compile_grammar(spec, Strictness::generation));
  auto masks = new_masks(std::move(pda), std::move(vocabulary));
  TRY(Constraint(masks, spec.drops_first_space).failure());
  return masks;
}

GrammarCache::GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, size_t grammars_max)
    : vocabulary_(std::move(vocabulary)), grammars_max_(grammars_max) {}

std::optional<Constraint> GrammarCache::find(const GrammarSpec& spec) {
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&spec](const Entry& entry) {
    return entry.spec.is_same_grammar(spec);
  });
  if (known == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, known);
  std::shared_ptr<MaskCache>& masks = known->masks;
  if (masks->space()->full()) {
    masks = new_masks(masks->space()->shared_pda(), vocabulary_);
  }
  return Constraint(masks, spec.drops_first_space);
}

Constraint GrammarCache::add(const GrammarSpec& spec, std::shared_ptr<MaskCache> masks) {
  entries_.push_front({spec, std::move(masks)});
  if (entries_.size() > grammars_max_) entries_.pop_back();
  return Constraint(entries_.front().masks, spec.drops_first_space);
}

Result<Constraint> GrammarCache::start(const GrammarSpec& spec) {
  if (std::optional<Constraint> known = find(spec)) return *std::move(known);
  return add(spec, TRY(compile_masks(spec, vocabulary_)));
}

}  // namespace strata::grammar
