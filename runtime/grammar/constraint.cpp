#include "runtime/grammar/constraint.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/grammar/grammar.h"

namespace strata::grammar {

Constraint::Constraint(std::shared_ptr<MaskCache> masks, bool drops_first_space)
    : masks_(std::move(masks)), matcher_(masks_->space()), drops_first_space_(drops_first_space) {}

// A space that has grown too large is left to those who still use it.
void Constraint::make_room() {
  if (!matcher_.space().full()) return;
  masks_ = std::make_shared<MaskCache>(std::make_shared<StateSpace>(matcher_.space().shared_pda()),
                                       masks_->vocabulary());
  matcher_.move_to(masks_->space());
}

const TokenMask& Constraint::mask(std::span<const int32_t> end_ids) {
  make_room();
  mask_ = masks_->mask(matcher_.situation());
  if (is_first_ && drops_first_space_) {
    // The space would not be shown, and a text without it is what the grammar then sees.
    for (const int32_t id : masks_->vocabulary()->with_first_space()) mask_.forbid(id);
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

bool Constraint::accept(int32_t token) {
  const Vocabulary& vocabulary = *masks_->vocabulary();
  if (token < 0 || token >= vocabulary.size() || vocabulary.text(token).empty()) return false;
  make_room();
  if (!matcher_.accept(vocabulary.text(token))) return false;
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

GrammarCache::GrammarCache(std::shared_ptr<const Vocabulary> vocabulary, size_t grammars_max)
    : vocabulary_(std::move(vocabulary)), grammars_max_(grammars_max) {}

Result<Constraint> GrammarCache::start(const GrammarSpec& spec) {
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&spec](const Entry& entry) {
    return entry.spec.kind == spec.kind && entry.spec.text == spec.text;
  });
  if (known != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, known);
  } else {
    const std::shared_ptr<const Pda> pda = TRY(compile_grammar(spec, Strictness::generation));
    entries_.push_front(
        {spec, std::make_shared<MaskCache>(std::make_shared<StateSpace>(pda), vocabulary_)});
    if (entries_.size() > grammars_max_) entries_.pop_back();
  }
  std::shared_ptr<MaskCache>& masks = entries_.front().masks;
  if (masks->space()->full()) {
    masks = std::make_shared<MaskCache>(std::make_shared<StateSpace>(masks->space()->shared_pda()),
                                        vocabulary_);
  }
  Constraint constraint(masks, spec.drops_first_space);
  if (!constraint.failure().ok()) return constraint.failure();
  return constraint;
}

}  // namespace strata::grammar
