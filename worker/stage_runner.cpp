#include "worker/stage_runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/float_scan.h"

namespace strata::worker {
namespace {

SlotLimits limits_of(const StageModel& model, uint32_t slots_max) {
  const StageOptions& options = model.options();
  return {.slots_max = slots_max,
          .max_context = options.max_context,
          .max_batch_tokens = options.max_batch_tokens,
          .max_sequences = options.max_sequences,
          .n_vocab = model.hparams().n_vocab,
          .group_blocks = options.kv.group_blocks};
}

// Numbers that are not finite are the fault of the weights that made them.
Status not_finite(const std::string& what) {
  return data_loss(what, "the model file is damaged, or made of broken weights");
}

bool is_dead(const StepRow& row) { return (row.flags & StepRow::dead) != 0; }

SequenceEnd end_of(const OpenSequence& sequence, int32_t token, uint32_t position) {
  const std::vector<int32_t>& ends = sequence.end_ids;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return SequenceEnd::end_token;
  const int64_t sampled = int64_t{position} - sequence.prompt_tokens + 1;
  return sampled >= int64_t{sequence.max_new_tokens} ? SequenceEnd::length : SequenceEnd::none;
}

}  // namespace

StageRunner::StageRunner(std::unique_ptr<StageModel> model, StageRunnerOptions options,
                         TokenFeedback& feedback)
    : model_(std::move(model)),
      options_(std::move(options)),
      feedback_(feedback),
      slots_(limits_of(*model_, options_.slots_max)),
      sampler_(options_.tokenizer_file) {}

Status StageRunner::check_order(const StepPlan& plan) const {
  if (plan.epoch != options_.epoch) {
    return failed_precondition(fmt::format("fenced: epoch {} {} {}", plan.epoch,
                                           plan.epoch < options_.epoch ? '<' : '>',
                                           options_.epoch));
  }
  if (plan.step_id != last_step_ + 1) {
    // The engine gives the pipeline up: no later step could be taken either.
    return {StatusCode::aborted,
            fmt::format("step {} came after step {}", plan.step_id, last_step_)};
  }
  return ok_status();
}

void StageRunner::Batch::clear() {
  rows.clear();
  tokens.clear();
  activations.clear();
  positions.clear();
  sequence.clear();
  outputs.clear();
}

// The records against the slots, then the activations' size.
Status StageRunner::check_content(const StepFrame& frame) {
  const StepPlan& plan = frame.plan;
  TRY(slots_.check(plan, is_head()));
  const uint64_t n_embd = static_cast<uint64_t>(model_->hparams().n_embd);
  const uint64_t wanted = is_head() ? 0 : plan.live_tokens() * n_embd;
  if (frame.activations.size() != wanted) {
    return invalid_argument(fmt::format("activations of {} bytes, {} tokens of {} values need {}",
                                        frame.activations.size() * sizeof(float),
                                        plan.live_tokens(), n_embd, wanted * sizeof(float)));
  }
  return ok_status();
}

// Puts the row's token ids into the batch. A row whose sequence has ended becomes dead instead.
Status StageRunner::take_tokens(const StepPlan& plan, StepRow& row, size_t& next_token,
                                std::optional<TimePoint> deadline) {
  Slot& slot = slots_[row.slot];
  if ((row.flags & StepRow::input_from_tail) == 0) {
    const auto first = plan.tokens.begin() + static_cast<ptrdiff_t>(next_token);
    next_token += row.count;
    if (slot.has_ended) row.flags |= StepRow::dead;
    if (!is_dead(row)) batch_.tokens.insert(batch_.tokens.end(), first, first + row.count);
    return ok_status();
  }
  if (is_dead(row)) return ok_status();
  std::optional<int32_t> token;
  if (!slot.has_ended) {
    token = TRY(feedback_.wait({.slot = row.slot,
                                .sequence_id = slot.sequence.sequence_id,
                                .position = row.position,
                                .sample_step = slot.last_sample_step},
                               deadline));
  }
  if (token) {
    batch_.tokens.push_back(*token);
  } else {
    slot.has_ended = true;
    row.flags |= StepRow::dead;
  }
  return ok_status();
}

void StageRunner::add_row(const StepFrame& frame, size_t index, size_t first_column) {
  const StepRow& row = frame.plan.rows[index];
  const Slot& slot = slots_[row.slot];
  LiveRow live{.row = index,
               .first_token = batch_.positions.size(),
               .first_output = batch_.outputs.size(),
               .n_outputs = 0};
  if (!is_head()) {
    const auto n_embd = static_cast<size_t>(model_->hparams().n_embd);
    const std::span<const float> columns =
        std::span(frame.activations).subspan(first_column * n_embd, row.count * n_embd);
    batch_.activations.insert(batch_.activations.end(), columns.begin(), columns.end());
    live.is_finite = !is_tail() || all_finite(columns);
  }
  const size_t number = batch_.rows.size();
  if (number == batch_.sequences.size()) batch_.sequences.emplace_back();
  batch_.sequences[number].tables.assign(slot.tables.begin(), slot.tables.end());
  for (uint32_t i = 0; i < row.count; ++i) {
    batch_.positions.push_back(static_cast<int32_t>(row.position + i));
    batch_.sequence.push_back(static_cast<int32_t>(number));
  }
  if (is_tail()) {
    const bool all = (row.flags & StepRow::want_logits) != 0;
    const bool last = (row.flags & StepRow::sample) != 0;
    live.n_outputs = all ? row.count : (last ? 1 : 0);
    const size_t end = batch_.positions.size();
    for (size_t i = end - live.n_outputs; i < end; ++i) {
      batch_.outputs.push_back(static_cast<int32_t>(i));
    }
  }
  batch_.rows.push_back(live);
}

Status StageRunner::fill_batch(StepFrame& frame, std::optional<TimePoint> deadline) {
  batch_.clear();
  size_t next_token = 0;
  size_t next_column = 0;
  for (size_t i = 0; i < frame.plan.rows.size(); ++i) {
    StepRow& row = frame.plan.rows[i];
    const size_t column = next_column;
    if (!is_dead(row)) next_column += row.count;  // the sender left out the dead ones only
    if (is_head()) TRY(take_tokens(frame.plan, row, next_token, deadline));
    Slot& slot = slots_[row.slot];
    if (slot.has_ended) row.flags |= StepRow::dead;
    slot.has_ended = is_dead(row);  // a stage before this one knew it first
    if (!is_dead(row)) add_row(frame, i, column);
  }
  return ok_status();
}

Result<std::span<const float>> StageRunner::compute() {
  return model_->run({.tokens = batch_.tokens,
                      .activations = batch_.activations,
                      .positions = batch_.positions,
                      .sequence = batch_.sequence,
                      .sequences = std::span(batch_.sequences).first(batch_.rows.size()),
                      .outputs = batch_.outputs});
}

// What every stage notes about a step that ran.
void StageRunner::finish_rows(const StepPlan& plan) {
  for (const LiveRow& live : batch_.rows) {
    const StepRow& row = plan.rows[live.row];
    Slot& slot = slots_[row.slot];
    slot.is_fresh = false;
    slot.length = std::max(slot.length, row.position + row.count);
    if ((row.flags & StepRow::sample) != 0) slot.last_sample_step = plan.step_id;
  }
}

// What the model made, for the next stage. A row that is not finite ends here, where its numbers
// were made: it goes on as a dead one, with the reason.
void StageRunner::forward_columns(StepFrame& frame, std::span<const float> columns) {
  const auto n_embd = static_cast<size_t>(model_->hparams().n_embd);
  frame.activations.clear();
  frame.activations.reserve(columns.size());  // once, however many rows
  for (const LiveRow& live : batch_.rows) {
    StepRow& row = frame.plan.rows[live.row];
    const std::span<const float> mine =
        columns.subspan(live.first_token * n_embd, row.count * n_embd);
    if (all_finite(mine)) {
      frame.activations.insert(frame.activations.end(), mine.begin(), mine.end());
      continue;
    }
    Slot& slot = slots_[row.slot];
    slot.has_ended = true;
    row.flags |= StepRow::dead;
    frame.plan.row_failures.push_back(
        {static_cast<uint32_t>(live.row),
         not_finite(fmt::format("{}: sequence {}: the layers made a NaN or an infinity at "
                                "positions {} to {}",
                                options_.name, slot.sequence.sequence_id, row.position,
                                row.position + row.count - 1))});
  }
}

// For a row that a stage before this one gave up.
TokenRecord StageRunner::failed_row(const StepPlan& plan, const RowFailure& failure) const {
  const StepRow& row = plan.rows[failure.row];
  TokenRecord record;
  record.slot = row.slot;
  record.sequence_id = slots_[row.slot].sequence.sequence_id;
  record.position = row.position + row.count;
  record.end = SequenceEnd::error;
  record.error = failure.why;
  return record;
}

TokenRecord StageRunner::sample_row(const StepRow& row, const LiveRow& live,
                                    std::span<const float> logits) {
  Slot& slot = slots_[row.slot];
  TokenRecord record;
  record.slot = row.slot;
  record.sequence_id = slot.sequence.sequence_id;
  record.position = row.position + row.count;
  const auto fail_row = [&](Status error) {
    record.error =
        error.with_context(fmt::format("{}: sequence {}", options_.name, record.sequence_id));
    record.end = SequenceEnd::error;
    record.logits.clear();
    slot.has_ended = true;
  };
  if (!live.is_finite) {
    fail_row(
        not_finite(fmt::format("the stage before sent a NaN or an infinity at positions {} to {}: "
                               "non-finite logits",
                               row.position, row.position + row.count - 1)));
    return record;
  }
  if (!all_finite(logits)) {
    fail_row(not_finite(fmt::format("non-finite logits after position {}", record.position - 1)));
    return record;
  }
  if ((row.flags & StepRow::want_logits) != 0) record.logits.assign(logits.begin(), logits.end());
  if ((row.flags & StepRow::sample) == 0) return record;

  const auto n_vocab = static_cast<size_t>(model_->hparams().n_vocab);
  Result<TokenSampler::Choice> choice =
      sampler_.sample(slot, logits.last(n_vocab), record.position);
  if (!choice.ok()) {
    fail_row(choice.status());
    return record;
  }
  record.token = choice->token.id;
  record.logprob = choice->token.logprob;
  record.top.reserve(choice->token.top.size());
  for (const TokenLogprob& top : choice->token.top) record.top.emplace_back(top.id, top.logprob);
  record.end = choice->end == SequenceEnd::none
                   ? end_of(slot.sequence, record.token, record.position)
                   : choice->end;
  if (choice->end == SequenceEnd::end_token) {
    // Nothing fits any more: the answer is over, as after an end token. Which one is not reported.
    const std::vector<int32_t>& ends = slot.sequence.end_ids;
    record.token = ends.empty() ? 0 : ends.front();
  }
  slot.has_ended = record.end != SequenceEnd::none;
  if (looks_back(slot.sequence.sampling)) slot.history.push_back(record.token);
  return record;
}

StepResult StageRunner::sample(const StepPlan& plan, std::span<const float> logits) {
  StepResult result;
  result.epoch = plan.epoch;
  result.step_id = plan.step_id;
  const auto n_vocab = static_cast<size_t>(model_->hparams().n_vocab);
  result.records.reserve(batch_.rows.size() + plan.row_failures.size());
  for (const RowFailure& failure : plan.row_failures) {
    result.records.push_back(failed_row(plan, failure));
  }
  for (const LiveRow& live : batch_.rows) {
    if (live.n_outputs == 0) continue;
    result.records.push_back(
        sample_row(plan.rows[live.row], live,
                   logits.subspan(live.first_output * n_vocab, live.n_outputs * n_vocab)));
  }
  return result;
}

StepOutcome StageRunner::run(StepFrame frame, std::optional<TimePoint> deadline) {
  if (const Status status = check_order(frame.plan); !status.ok()) {
    return {.forward = {}, .result = failed_result(frame.plan, status)};
  }
  last_step_ = frame.plan.step_id;
  if (!frame.plan.failure.ok()) return pass_failure(std::move(frame));
  if (const Status status = check_content(frame); !status.ok()) {
    const bool applied = apply_records(frame.plan);
    return fail(std::move(frame), status, applied);
  }
  slots_.apply(frame.plan);
  if (is_tail()) {
    for (const OpenSequence& sequence : frame.plan.opens) sampler_.open(sequence);
  }
  for (const BlockCopy& copy : frame.plan.block_copies) {
    const Status status = model_->kv_cache().copy(copy);
    if (!status.ok()) return fail(std::move(frame), status, true);
  }
  if (const Status status = fill_batch(frame, deadline); !status.ok()) {
    return fail(std::move(frame), status, true);
  }
  const Result<std::span<const float>> output = compute();
  if (!output.ok()) return fail(std::move(frame), output.status(), true);
  finish_rows(frame.plan);
  StepOutcome outcome;
  if (is_tail()) {
    outcome.result = sample(frame.plan, *output);
    outcome.result->busy_ns = frame.plan.busy_ns;
  } else {
    forward_columns(frame, *output);
    outcome.forward = std::move(frame);
  }
  return outcome;
}

StepOutcome StageRunner::refuse(StepFrame frame, const Status& reason) {
  if (const Status status = check_order(frame.plan); !status.ok()) {
    return {.forward = {}, .result = failed_result(frame.plan, status)};
  }
  last_step_ = frame.plan.step_id;
  const bool applied = apply_records(frame.plan);
  return fail(std::move(frame), reason, applied);
}

// The records of a step whose rows will not run. Closes hold even where others are wrong: the
// coordinator counts their slots as free from here on.
bool StageRunner::apply_records(const StepPlan& plan) {
  if (slots_.check(plan, is_head()).ok()) {
    slots_.apply(plan);
    return true;
  }
  for (const uint32_t slot : plan.closes) {
    if (slot < options_.slots_max) slots_[slot] = Slot();
  }
  return false;
}

StepResult StageRunner::failed_result(const StepPlan& plan, const Status& reason) const {
  return {.epoch = plan.epoch,
          .step_id = plan.step_id,
          .records = {},
          .status = reason.with_context(fmt::format("{}: step {}", options_.name, plan.step_id)),
          .busy_ns = plan.busy_ns};
}

// A step that a stage before this one could not run, and has told the coordinator about. The tail
// says it once more, in its turn, so that the head and the coordinator learn of it even if that
// stage's own word was lost.
StepOutcome StageRunner::pass_failure(StepFrame frame) {
  StepResult told{.epoch = frame.plan.epoch,
                  .step_id = frame.plan.step_id,
                  .records = {},
                  .status = frame.plan.failure,
                  .busy_ns = frame.plan.busy_ns};
  const bool applied = apply_records(frame.plan);
  StepOutcome outcome = fail(std::move(frame), told.status, applied);
  outcome.result.reset();
  if (is_tail()) outcome.result = std::move(told);
  return outcome;
}

// Later stages get the step all the same, so that ids stay without gaps: its records if they were
// applied here, else its closes, no live row, and the failure.
StepOutcome StageRunner::fail(StepFrame frame, const Status& reason, bool records_applied) {
  StepOutcome outcome;
  outcome.result = failed_result(frame.plan, reason);
  if (frame.plan.failure.ok()) frame.plan.failure = outcome.result->status;
  for (StepRow& row : frame.plan.rows) {
    row.flags |= StepRow::dead;
    if (row.slot < options_.slots_max) slots_[row.slot].has_ended = true;
  }
  if (is_tail()) return outcome;
  outcome.forward = StepFrame();
  if (records_applied) {
    outcome.forward->plan = std::move(frame.plan);
  } else {
    outcome.forward->plan.epoch = frame.plan.epoch;
    outcome.forward->plan.step_id = frame.plan.step_id;
    outcome.forward->plan.failure = frame.plan.failure;
    outcome.forward->plan.busy_ns = frame.plan.busy_ns;
    for (const uint32_t slot : frame.plan.closes) {
      if (slot < options_.slots_max) outcome.forward->plan.closes.push_back(slot);
    }
  }
  return outcome;
}

}  // namespace strata::worker
