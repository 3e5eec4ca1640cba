// Steps out: admission to slots, rows for the next micro-batch, blocks for the rows.
#include <algorithm>

#include "coordinator/engine/engine.h"
#include "runtime/base/check.h"

namespace strata::coordinator {
namespace {

// What an open record takes on the wire, at most, by what has no fixed size.
uint64_t record_bytes(const SamplingParams& sampling, size_t history, size_t end_ids) {
  constexpr uint64_t kFixedBytes = 256;
  constexpr uint64_t kBiasBytes = 24;   // a message with a token and a number
  constexpr uint64_t kTokenBytes = 10;  // of a negative one; others take 5 and less
  return kFixedBytes + sampling.grammar.text.size() + kBiasBytes * sampling.logit_bias.size() +
         kTokenBytes * (history + end_ids);
}

// Whether one step's records can carry the sequence's beside those of `opens`: a frame holds 16 MiB
// of records (docs/wire.md). The next step takes those that do not fit. One alone always goes: a
// grammar, a bias and a history are bounded by their own limits, the vocabulary and the context.
bool fits_beside(const Sequence& sequence, const std::vector<OpenSequence>& opens) {
  constexpr uint64_t kOpenBytesPerStep = (uint64_t{4} << 20) + (uint64_t{256} << 10);
  if (opens.empty()) return true;
  const SamplingParams& sampling = sequence.request.sampling;
  uint64_t bytes = record_bytes(sampling, looks_back(sampling) ? sequence.tokens.size() : 0,
                                sequence.request.end_ids.size());
  for (const OpenSequence& open : opens) {
    bytes += record_bytes(open.sampling, open.history.size(), open.end_ids.size());
  }
  return bytes <= kOpenBytesPerStep;
}

}  // namespace

void Engine::plan(TimePoint now, EngineActions& actions) {
  if (!shape_) return;
  while (in_flight_.size() < shape_->steps_in_flight) {
    if (!plan_step(now, actions)) break;
  }
}

// Gives slots to waiting requests, in order of arrival, as long as their known tokens find room
// beside what the live ones were promised.
void Engine::admit() {
  std::vector<uint32_t> promised(shape_->groups.size(), 0);
  for (const Sequence* sequence : live_) {
    const uint32_t positions = std::max(sequence->replay_tokens, sequence->planned) + 1;
    blocks_->add_missing(sequence->tables, std::min(positions, sequence->last_position_end),
                         row_tokens_max(), promised);
  }
  for (auto next = queue_.begin(); next != queue_.end() && !free_slots_.empty();) {
    Sequence& sequence = **next;
    if (sequence.ready_at) {
      ++next;
      continue;
    }
    const uint32_t positions = std::min(sequence.token_count() + 1, sequence.last_position_end);
    blocks_->add_missing(blocks_->open(), positions, row_tokens_max(), promised);
    if (!live_.empty() && !blocks_->covers(promised)) return;
    next = queue_.erase(next);
    sequence.sequence_id = next_sequence_id_++;
    sequence.slot = free_slots_.front();
    free_slots_.pop_front();
    sequence.tables = blocks_->open();
    sequence.replay_tokens = sequence.token_count();
    by_sequence_id_.emplace(sequence.sequence_id, &sequence);
    const auto after = std::find_if(live_.begin(), live_.end(), [&](const Sequence* other) {
      return other->arrival > sequence.arrival;
    });
    live_.insert(after, &sequence);
  }
}

std::vector<BatchCandidate> Engine::candidates() const {
  std::vector<BatchCandidate> result;
  result.reserve(live_.size());
  for (size_t i = 0; i < live_.size(); ++i) {
    const Sequence& sequence = *live_[i];
    result.push_back(
        {.index = static_cast<uint32_t>(i),
         .prompt_left = sequence.prompt_left_in_step(),
         .decode_ready = sequence.decode_ready(),
         .decoding = sequence.decoding() && sequence.planned < sequence.last_position_end,
         .last_served = sequence.last_served});
  }
  return result;
}

// Cuts rows that want logits to what the tail computes, and a frame carries, in one step; each
// other row may want those of one position. What does not fit is left for the next step.
void Engine::limit_outputs(std::vector<std::pair<Sequence*, uint32_t>>& chosen) const {
  constexpr size_t kLogitsBytesPerStep = size_t{8} << 20;
  const auto wants = [](const Sequence& sequence) {
    return sequence.request.want_logits && sequence.planned < sequence.prompt_size();
  };
  const size_t others = static_cast<size_t>(std::count_if(
      chosen.begin(), chosen.end(), [&](const auto& row) { return !wants(*row.first); }));
  const size_t carried =
      kLogitsBytesPerStep / (static_cast<size_t>(shape_->vocab_size) * sizeof(float));
  size_t left = std::max<size_t>(carried, 1);
  if (shape_->outputs_max > 0) {
    const size_t computed = shape_->outputs_max > others ? shape_->outputs_max - others : 0;
    left = std::min(left, computed);
  }
  for (auto& [sequence, count] : chosen) {
    if (!wants(*sequence)) continue;
    count = static_cast<uint32_t>(std::min<size_t>(count, left));
    left -= count;
  }
  std::erase_if(chosen, [](const auto& row) { return row.second == 0; });
}

// Appends one step to the actions. False if nothing is due.
bool Engine::plan_step(TimePoint now, EngineActions& actions) {
  const uint64_t pushed_out_before = counters_.pushed_out;
  admit();
  const std::vector<BatchRow> rows =
      choose_rows(candidates(), {.stage_count = shape_->stage_count,
                                 .step_tokens = shape_->step_tokens,
                                 .prefill_chunk = shape_->prefill_chunk});
  std::vector<std::pair<Sequence*, uint32_t>> chosen;  // pushing out changes live_
  chosen.reserve(rows.size());
  for (const BatchRow& row : rows) chosen.emplace_back(live_[row.index], row.count);
  limit_outputs(chosen);

  StepPlan plan;
  plan.epoch = shape_->epoch;
  plan.step_id = next_step_id_;
  StepInFlight step{.step_id = plan.step_id, .rows = {}};
  for (const auto& [sequence, count] : chosen) {
    if (sequence->live()) plan_row(*sequence, count, plan, step);
  }
  // Without rows but with somebody pushed out, another choice may find room.
  if (plan.rows.empty()) return counters_.pushed_out != pushed_out_before;
  ++next_step_id_;
  plan.closes = std::move(pending_closes_);
  pending_closes_.clear();
  step.limit = step_limit(step);
  plan.budget_ms = step_budget_ms(step, now);
  if (in_flight_.empty()) front_since_ = now;
  in_flight_.push_back(std::move(step));
  ++counters_.steps_sent;
  actions.steps.push_back(std::move(plan));
  return true;
}

// Adds the sequence's next `count` tokens to the step. False if there are no blocks for them.
bool Engine::plan_row(Sequence& sequence, uint32_t count, StepPlan& plan, StepInFlight& step) {
  const uint32_t begin = sequence.planned;
  const uint32_t end = begin + count;
  if (!sequence.opened && !fits_beside(sequence, plan.opens)) return false;
  if (!make_room(sequence, count, plan, step)) return false;
  if (!sequence.opened) {
    plan.opens.push_back(open_record(sequence));
    sequence.opened = true;
  }
  StepRow row{.slot = sequence.slot, .position = begin, .count = count, .flags = 0};
  const bool samples = sequence.max_new_tokens > 0 && end >= sequence.replay_tokens;
  if (samples) row.flags |= StepRow::sample;
  if (sequence.request.want_logits && begin < sequence.prompt_size()) {
    row.flags |= StepRow::want_logits;
  }
  if (begin >= sequence.token_count()) {
    STRATA_CHECK(count == 1, "only one token can come from the tail");
    row.flags |= StepRow::input_from_tail;
  } else {
    plan.tokens.insert(plan.tokens.end(), sequence.tokens.begin() + begin,
                       sequence.tokens.begin() + end);
  }
  plan.rows.push_back(row);
  step.rows.push_back(
      {.sequence_id = sequence.sequence_id, .count = count, .end = end, .flags = row.flags});
  if (begin < sequence.replay_tokens) counters_.prompt_tokens += count;
  sequence.planned = end;
  sequence.last_served = plan.step_id;
  ++sequence.rows_in_flight;
  if (samples) ++sequence.samples_in_flight;
  return true;
}

// Finds blocks for the sequence's next tokens, pushing out the youngest sequences that are not in
// this step if need be. A sequence never pushes out an older one: it steps back itself.
bool Engine::make_room(Sequence& sequence, uint32_t count, StepPlan& plan,
                       const StepInFlight& step) {
  const uint32_t begin = sequence.planned;
  while (
      !blocks_->extend(sequence.tables, begin, begin + count, sequence.slot, plan.block_changes)) {
    Sequence* youngest = nullptr;  // that is not in this step
    bool younger_in_step = false;
    for (Sequence* other : live_) {
      const bool in_step = std::any_of(
          step.rows.begin(), step.rows.end(),
          [&](const RowInFlight& row) { return row.sequence_id == other->sequence_id; });
      if (!in_step) youngest = other;
      younger_in_step = younger_in_step || (in_step && other->arrival > sequence.arrival);
    }
    STRATA_CHECK(youngest != nullptr, "the sequence itself is not in the step yet");
    if (youngest == &sequence && younger_in_step) return false;  // next time it comes first
    STRATA_CHECK(youngest != &sequence || live_.size() > 1, "a lone sequence was promised room");
    push_out(*youngest);
    if (youngest == &sequence) return false;
  }
  return true;
}

void Engine::push_out(Sequence& sequence) {
  ++counters_.pushed_out;
  requeue(sequence);
}

// Tried again after a while that grows, since each try computes the prompt.
void Engine::postpone(Sequence& sequence, TimePoint now) {
  constexpr Duration kFirstWait = std::chrono::milliseconds(5);
  constexpr uint32_t kDoublingsMax = 6;  // 320 ms
  sequence.ready_at = now + kFirstWait * (1 << std::min(sequence.postponements, kDoublingsMax));
  ++sequence.postponements;
  requeue(sequence);
}

// Back to the queue, to run again later from its tokens; results that are under way are dropped and
// come again equal.
void Engine::requeue(Sequence& sequence) {
  leave_slot(sequence);
  const auto after = std::find_if(queue_.begin(), queue_.end(), [&](const Sequence* other) {
    return other->arrival > sequence.arrival;
  });
  queue_.insert(after, &sequence);
}

OpenSequence Engine::open_record(const Sequence& sequence) const {
  const SamplingParams& sampling = sequence.request.sampling;
  OpenSequence open;
  open.slot = sequence.slot;
  open.sequence_id = sequence.sequence_id;
  open.prompt_tokens = sequence.replay_tokens;
  open.max_new_tokens = sequence.max_new_tokens - (sequence.replay_tokens - sequence.prompt_size());
  open.sampling = sampling;
  open.end_ids = sequence.request.end_ids;
  if (looks_back(sampling)) {
    open.history = sequence.tokens;
    open.answer_tokens = sequence.new_tokens();
  }
  return open;
}

// How long the step may be the oldest one in flight.
Duration Engine::step_limit(const StepInFlight& step) const {
  uint32_t tokens = 0;
  for (const RowInFlight& row : step.rows) tokens += row.count;
  return limits_.step_timeout + tokens * shape_->token_allowance;
}

// What the step and those before it may take, or less if no row of it has as much time left.
uint32_t Engine::step_budget_ms(const StepInFlight& step, TimePoint now) const {
  using std::chrono::milliseconds;
  Duration most = step.limit;
  for (const StepInFlight& earlier : in_flight_) most += earlier.limit;
  Duration wanted{};
  for (const RowInFlight& row : step.rows) {
    const Sequence* sequence = by_sequence_id_.at(row.sequence_id);
    const std::optional<TimePoint>& deadline = sequence->request.deadline;
    wanted = std::max(wanted, deadline ? std::min(most, *deadline - now) : most);
  }
  const int64_t budget = std::chrono::duration_cast<milliseconds>(wanted).count();
  return static_cast<uint32_t>(std::clamp<int64_t>(budget, 1, UINT32_MAX));
}

}  // namespace strata::coordinator
