// Steps and results: runtime/model/step.h to frames and back.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "backends/remote/wire.h"
#include "backends/remote/wire_fields.h"
#include "runtime/base/checked_math.h"

namespace strata::remote {
namespace {

// Bounds far above what an engine sends, and far below what would hurt.
constexpr uint32_t kTokensPerStepMax = 1 << 20;
constexpr uint32_t kRowFlags =
    StepRow::input_from_tail | StepRow::sample | StepRow::want_logits | StepRow::dead;

void put(const SamplingParams& params, v1::SamplingParams& out) {
  out.set_temperature(params.temperature);
  out.set_top_k(params.top_k);
  out.set_top_p(params.top_p);
  out.set_min_p(params.min_p);
  out.set_repetition_penalty(params.repetition_penalty);
  out.set_frequency_penalty(params.frequency_penalty);
  out.set_presence_penalty(params.presence_penalty);
  out.set_penalty_last_n(params.penalty_last_n);
  for (const auto& [token, bias] : params.logit_bias) {
    v1::LogitBias* entry = out.add_logit_bias();
    entry->set_token(token);
    entry->set_bias(bias);
  }
  out.set_seed(params.seed);
  out.set_choice(params.choice);
  out.set_logprobs(params.logprobs);
  out.set_top_logprobs(params.top_logprobs);
  if (params.grammar.kind != GrammarSpec::Kind::none) {
    put_grammar(params.grammar, *out.mutable_grammar());
  }
}

// Ranges are checked with the vocabulary at hand, by sampling_params.h's validate().
Result<SamplingParams> take(const v1::SamplingParams& in) {
  SamplingParams params;
  params.temperature = in.temperature();
  params.top_k = in.top_k();
  params.top_p = in.top_p();
  params.min_p = in.min_p();
  params.repetition_penalty = in.repetition_penalty();
  params.frequency_penalty = in.frequency_penalty();
  params.presence_penalty = in.presence_penalty();
  params.penalty_last_n = in.penalty_last_n();
  for (const v1::LogitBias& entry : in.logit_bias()) {
    params.logit_bias.emplace_back(entry.token(), entry.bias());
  }
  params.seed = in.seed();
  params.choice = in.choice();
  params.logprobs = in.logprobs();
  params.top_logprobs = in.top_logprobs();
  if (in.has_grammar()) params.grammar = TRY(take_grammar(in.grammar()));
  return params;
}

void put(const OpenSequence& open, v1::OpenSequence& out) {
  out.set_slot(open.slot);
  out.set_sequence_id(open.sequence_id);
  out.set_prompt_tokens(open.prompt_tokens);
  out.set_max_new_tokens(open.max_new_tokens);
  put(open.sampling, *out.mutable_sampling());
  out.mutable_end_ids()->Assign(open.end_ids.begin(), open.end_ids.end());
  out.mutable_history()->Assign(open.history.begin(), open.history.end());
  out.set_answer_tokens(open.answer_tokens);
}

Result<OpenSequence> take(const v1::OpenSequence& in) {
  OpenSequence open;
  open.slot = in.slot();
  open.sequence_id = in.sequence_id();
  open.prompt_tokens = in.prompt_tokens();
  open.max_new_tokens = in.max_new_tokens();
  open.sampling = TRY(take(in.sampling()));
  open.end_ids.assign(in.end_ids().begin(), in.end_ids().end());
  open.history.assign(in.history().begin(), in.history().end());
  open.answer_tokens = in.answer_tokens();
  return open;
}

std::string serialize(const StepPlan& plan) {
  StackMessage<v1::StepPlan> message;
  v1::StepPlan& out = *message;
  out.set_budget_ms(plan.budget_ms);
  for (const OpenSequence& open : plan.opens) put(open, *out.add_opens());
  out.mutable_closes()->Assign(plan.closes.begin(), plan.closes.end());
  for (const BlockChange& change : plan.block_changes) {
    v1::BlockChange* entry = out.add_block_changes();
    entry->set_slot(change.slot);
    entry->set_group(change.group);
    entry->set_index(change.index);
    entry->set_block(change.block);
  }
  for (const BlockCopy& copy : plan.block_copies) {
    v1::BlockCopy* entry = out.add_block_copies();
    entry->set_group(copy.group);
    entry->set_from(copy.from);
    entry->set_to(copy.to);
  }
  for (const StepRow& row : plan.rows) {
    v1::StepRow* entry = out.add_rows();
    entry->set_slot(row.slot);
    entry->set_position(row.position);
    entry->set_count(row.count);
    entry->set_flags(row.flags);
  }
  out.mutable_tokens()->Assign(plan.tokens.begin(), plan.tokens.end());
  if (!plan.failure.ok()) put_failure(plan.failure, *out.mutable_failure());
  out.set_busy_ns(plan.busy_ns);
  for (const RowFailure& failure : plan.row_failures) {
    v1::RowFailure* entry = out.add_row_failures();
    entry->set_row(failure.row);
    put_failure(failure.why, *entry->mutable_why());
  }
  return out.SerializeAsString();
}

Result<StepRow> take_row(const v1::StepRow& in, int index) {
  const StepRow row{in.slot(), in.position(), in.count(), in.flags()};
  const auto bad = [&](const std::string& why) {
    return invalid_argument(fmt::format("step: row {} (slot {}): {}", index, row.slot, why));
  };
  if ((row.flags & ~kRowFlags) != 0) return bad(fmt::format("unknown flags {:#x}", row.flags));
  if (row.count == 0 || row.count > kTokensPerStepMax) {
    return bad(fmt::format("count {} is not in 1..{}", row.count, kTokensPerStepMax));
  }
  if ((row.flags & StepRow::input_from_tail) != 0 && row.count != 1) {
    return bad(fmt::format("count {} where the tail gives the one input token", row.count));
  }
  if (!checked_add<uint32_t>(row.position, row.count)) {
    return bad(fmt::format("position {} + count {} is too large", row.position, row.count));
  }
  return row;
}

Result<StepPlan> parse_plan(const Frame& frame) {
  StackMessage<v1::StepPlan> message;
  v1::StepPlan& in = *message;
  if (!in.ParseFromString(frame.record)) {
    return invalid_argument(fmt::format("step {}: the plan's {} bytes are no StepPlan", frame.step,
                                        frame.record.size()));
  }
  StepPlan plan;
  plan.epoch = frame.epoch;
  plan.step_id = frame.step;
  plan.budget_ms = in.budget_ms();
  plan.failure = take_failure(in.failure());
  plan.busy_ns = in.busy_ns();
  for (const v1::OpenSequence& open : in.opens()) {
    plan.opens.push_back(TRY(take(open).with_context(fmt::format("step {}", frame.step))));
  }
  plan.closes.assign(in.closes().begin(), in.closes().end());
  for (const v1::BlockChange& change : in.block_changes()) {
    plan.block_changes.push_back({change.slot(), change.group(), change.index(), change.block()});
  }
  for (const v1::BlockCopy& copy : in.block_copies()) {
    plan.block_copies.push_back({copy.group(), copy.from(), copy.to()});
  }
  uint64_t live_tokens = 0;
  uint64_t own_tokens = 0;
  plan.rows.reserve(static_cast<size_t>(in.rows_size()));
  for (int i = 0; i < in.rows_size(); ++i) {
    const StepRow row = TRY(take_row(in.rows(i), i));
    if ((row.flags & StepRow::dead) == 0) live_tokens += row.count;
    if ((row.flags & StepRow::input_from_tail) == 0) own_tokens += row.count;
    plan.rows.push_back(row);
  }
  if (live_tokens > kTokensPerStepMax) {
    return invalid_argument(fmt::format("step {}: {} tokens are more than {}", frame.step,
                                        live_tokens, kTokensPerStepMax));
  }
  plan.tokens.assign(in.tokens().begin(), in.tokens().end());
  if (plan.tokens.size() != own_tokens) {
    return invalid_argument(fmt::format("step {}: {} token ids for rows of {} tokens", frame.step,
                                        plan.tokens.size(), own_tokens));
  }
  for (const v1::RowFailure& failure : in.row_failures()) {
    const bool is_dead =
        failure.row() < plan.rows.size() && (plan.rows[failure.row()].flags & StepRow::dead) != 0;
    if (!is_dead || failure.why().code() == 0) {
      return invalid_argument(fmt::format("step {}: row {} of {} is said to have failed, but {}",
                                          frame.step, failure.row(), plan.rows.size(),
                                          is_dead ? "not why" : "it is not dead"));
    }
    plan.row_failures.push_back({failure.row(), take_failure(failure.why())});
  }
  return plan;
}

}  // namespace

Result<Frame> to_frame(StepFrame step) {
  Frame frame;
  frame.kind = FrameKind::step;
  frame.epoch = step.plan.epoch;
  frame.step = step.plan.step_id;
  const uint32_t live_tokens = step.plan.live_tokens();
  if (!step.activations.empty()) {
    if (live_tokens == 0 || step.activations.size() % live_tokens != 0) {
      return internal_error(fmt::format("step {}: {} activations for {} tokens", frame.step,
                                        step.activations.size(), live_tokens));
    }
    frame.n_tokens = live_tokens;
    frame.n_embd = static_cast<uint32_t>(step.activations.size() / live_tokens);
  }
  frame.record = serialize(step.plan);
  frame.rows = std::move(step.activations);
  return frame;
}

Result<StepFrame> step_from_frame(Frame frame) {
  StepFrame step;
  step.plan = TRY(parse_plan(frame));
  if (frame.n_tokens != 0 && frame.n_tokens != step.plan.live_tokens()) {
    return invalid_argument(fmt::format("step {}: activations of {} tokens for a plan of {}",
                                        frame.step, frame.n_tokens, step.plan.live_tokens()));
  }
  step.activations = std::move(frame.rows);
  return step;
}

Result<Frame> to_frame(StepResult result) {
  Frame frame;
  frame.kind = FrameKind::result;
  frame.epoch = result.epoch;
  frame.step = result.step_id;
  StackMessage<v1::StepResult> message;
  v1::StepResult& out = *message;
  put_failure(result.status, *out.mutable_status());
  out.set_busy_ns(result.busy_ns);
  for (TokenRecord& record : result.records) {
    v1::TokenRecord* entry = out.add_records();
    entry->set_slot(record.slot);
    entry->set_sequence_id(record.sequence_id);
    entry->set_position(record.position);
    entry->set_token(record.token);
    entry->set_logprob(record.logprob);
    entry->set_end(static_cast<uint32_t>(record.end));
    for (const auto& [token, logprob] : record.top) {
      entry->add_top_tokens(token);
      entry->add_top_logprobs(logprob);
    }
    put_failure(record.error, *entry->mutable_error());
    entry->set_logits_count(record.logits.size());
    if (frame.rows.empty()) {
      frame.rows = std::move(record.logits);
    } else {
      frame.rows.insert(frame.rows.end(), record.logits.begin(), record.logits.end());
    }
  }
  // One "row" of one number each: how many belong to a position is known to those who asked.
  if (frame.rows.size() * sizeof(float) > kRowsBytesMax) {
    return resource_exhausted(
        fmt::format("step {}: {} bytes of logits are more than {}", frame.step,
                    frame.rows.size() * sizeof(float), kRowsBytesMax),
        "ask for the logits of fewer positions a step");
  }
  if (!frame.rows.empty()) {
    frame.n_tokens = static_cast<uint32_t>(frame.rows.size());
    frame.n_embd = 1;
  }
  frame.record = out.SerializeAsString();
  return frame;
}

Result<StepResult> result_from_frame(Frame frame) {
  StackMessage<v1::StepResult> message;
  v1::StepResult& in = *message;
  if (!in.ParseFromString(frame.record)) {
    return invalid_argument(fmt::format("result of step {}: the record's {} bytes are none",
                                        frame.step, frame.record.size()));
  }
  StepResult result;
  result.epoch = frame.epoch;
  result.step_id = frame.step;
  result.status = take_failure(in.status());
  result.busy_ns = in.busy_ns();
  result.records.reserve(static_cast<size_t>(in.records_size()));
  uint64_t taken = 0;
  for (const v1::TokenRecord& entry : in.records()) {
    if (entry.end() > static_cast<uint32_t>(SequenceEnd::not_ready)) {
      return invalid_argument(
          fmt::format("result of step {}: end {} is not in 0..4", frame.step, entry.end()));
    }
    if (entry.top_tokens_size() != entry.top_logprobs_size()) {
      return invalid_argument(fmt::format("result of step {}: {} alternatives with {} logprobs",
                                          frame.step, entry.top_tokens_size(),
                                          entry.top_logprobs_size()));
    }
    TokenRecord record;
    record.slot = entry.slot();
    record.sequence_id = entry.sequence_id();
    record.position = entry.position();
    record.token = entry.token();
    record.logprob = entry.logprob();
    record.end = static_cast<SequenceEnd>(entry.end());
    for (int i = 0; i < entry.top_tokens_size(); ++i) {
      record.top.emplace_back(entry.top_tokens(i), entry.top_logprobs(i));
    }
    record.error = take_failure(entry.error());
    if (entry.logits_count() > frame.rows.size() - taken) {
      return invalid_argument(
          fmt::format("result of step {}: a record claims {} logits, {} are left", frame.step,
                      entry.logits_count(), frame.rows.size() - taken));
    }
    const auto first = frame.rows.begin() + static_cast<std::ptrdiff_t>(taken);
    record.logits.assign(first, first + static_cast<std::ptrdiff_t>(entry.logits_count()));
    taken += entry.logits_count();
    result.records.push_back(std::move(record));
  }
  if (taken != frame.rows.size()) {
    return invalid_argument(fmt::format("result of step {}: {} logits, {} belong to records",
                                        frame.step, frame.rows.size(), taken));
  }
  return result;
}

}  // namespace strata::remote
