// Events in: requests, cancellations, results, time. engine_plan.cpp makes the steps.
#include "coordinator/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/human.h"

namespace strata::coordinator {

namespace {

// The pipeline says what cannot be: no later step could be believed either.
Status broken_pipeline(std::string message) {
  return unavailable(std::move(message), "the model is being placed anew; try again in a moment");
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::end_token:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

Engine::Engine(const EngineLimits& limits)
    : limits_(limits), no_pipeline_(unavailable("no model is loaded yet", "try again later")) {}

void Engine::attach(const PipelineShape& shape) {
  STRATA_CHECK(!shape_, "one pipeline at a time");
  STRATA_CHECK(shape.stage_count >= 1 && shape.context >= 1 && shape.vocab_size >= 1 &&
                   shape.slots >= 1 && shape.step_tokens >= 2,
               "a pipeline without stages, context, vocabulary, slots or step tokens");
  shape_ = shape;
  if (shape_->steps_in_flight == 0) shape_->steps_in_flight = shape.stage_count + 1;
  blocks_ = std::make_unique<BlockManager>(shape.groups);
  free_slots_.clear();
  for (uint32_t slot = 0; slot < shape.slots; ++slot) free_slots_.push_back(slot);
  pending_closes_.clear();
  next_step_id_ = 1;
}

void Engine::detach(const Status& why, EngineActions& actions) {
  STRATA_CHECK(!why.ok(), "a pipeline is lost for a reason");
  no_pipeline_ = why;
  while (!requests_.empty()) {
    finish(*requests_.begin()->second, FinishReason::error, why, actions);
  }
  in_flight_.clear();
  blocks_.reset();
  shape_.reset();
}

void Engine::give_up(const Status& why, EngineActions& actions) {
  actions.failed_epoch = shape_->epoch;
  detach(why, actions);
  actions.steps.clear();
  actions.pipeline_failed = true;
  actions.failure = why;
}

// --- Requests ------------------------------------------------------------------------------------

uint32_t Engine::row_tokens_max() const {
  if (shape_->prefill_chunk == 0) return shape_->step_tokens;
  return std::min(shape_->prefill_chunk, shape_->step_tokens);
}

Status Engine::validate_request(const Request& request) const {
  if (!shape_) return no_pipeline_;
  if (request.prompt.empty()) {
    return invalid_argument("the prompt is empty", "send at least one token");
  }
  const uint64_t needed = request.prompt.size() + (request.max_new_tokens > 0 ? 1 : 0);
  if (needed > shape_->context) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens and the context holds {}{}", request.prompt.size(),
                    shape_->context,
                    request.max_new_tokens > 0 ? ", one of them for the answer" : ""),
        "shorten the prompt or start with a larger --ctx");
  }
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const int32_t id = request.prompt[i];
    if (id < 0 || id >= shape_->vocab_size) {
      return invalid_argument(fmt::format("token {} of the prompt is {}, must be in [0, {})", i, id,
                                          shape_->vocab_size));
    }
  }
  return validate(request.sampling, shape_->vocab_size);
}

void Engine::submit(RequestId id, Request request, RequestListener listener, TimePoint now,
                    EngineActions& actions) {
  STRATA_CHECK(!requests_.contains(id), "a request id was used twice");
  auto owned = std::make_unique<Sequence>();
  Sequence& sequence = *owned;
  sequence.request_id = id;
  sequence.listener = std::move(listener);
  sequence.arrival = next_arrival_++;
  Status status = validate_request(request);
  if (status.ok()) {
    const uint32_t room = shape_->context - static_cast<uint32_t>(request.prompt.size());
    sequence.max_new_tokens = std::min(request.max_new_tokens, room);
  }
  sequence.request = std::move(request);
  sequence.tokens = sequence.request.prompt;
  requests_.emplace(id, std::move(owned));
  if (status.ok()) {
    sequence.last_position_end =
        sequence.prompt_size() + (sequence.max_new_tokens > 0 ? sequence.max_new_tokens - 1 : 0);
    if (!blocks_->can_ever_hold(sequence.last_position_end, row_tokens_max())) {
      status = invalid_argument(
          fmt::format("{} prompt and {} new tokens need more KV cache than the workers hold",
                      sequence.prompt_size(), sequence.max_new_tokens),
          "ask for fewer tokens, or give the workers more --memory");
    }
  }
  if (status.ok() && sequence.request.deadline && *sequence.request.deadline <= now) {
    status = deadline_exceeded("the request's deadline had passed when it arrived");
  }
  if (status.ok() && queue_.size() >= limits_.queue_max) {
    status = resource_exhausted(fmt::format("{} requests are waiting already", queue_.size()),
                                "try again later");
  }
  if (!status.ok()) {
    finish(sequence, FinishReason::error, std::move(status), actions);
    return;
  }
  queue_.push_back(&sequence);
}

void Engine::cancel(RequestId id, EngineActions& actions) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  finish(*found->second, FinishReason::cancelled, {}, actions);
}

void Engine::leave_slot(Sequence& sequence) {
  if (!sequence.live()) return;
  blocks_->release(sequence.tables);
  by_sequence_id_.erase(sequence.sequence_id);
  std::erase(live_, &sequence);
  free_slots_.push_back(sequence.slot);
  if (sequence.opened) pending_closes_.push_back(sequence.slot);
  sequence.sequence_id = 0;
  sequence.planned = 0;
  sequence.samples_in_flight = 0;
  sequence.rows_in_flight = 0;
  sequence.opened = false;
}

// Ends the request. The sequence is gone afterwards.
void Engine::finish(Sequence& sequence, FinishReason reason, Status status,
                    EngineActions& actions) {
  leave_slot(sequence);
  std::erase(queue_, &sequence);
  RequestFinish event{.reason = reason,
                      .status = std::move(status),
                      .prompt_tokens = sequence.prompt_size(),
                      .new_tokens = sequence.new_tokens()};
  const RequestId id = sequence.request_id;
  actions.events.push_back({id, std::move(sequence.listener), std::move(event)});
  requests_.erase(id);
}

// --- Results -------------------------------------------------------------------------------------

Sequence* Engine::find_live(uint64_t sequence_id) {
  const auto found = by_sequence_id_.find(sequence_id);
  return found == by_sequence_id_.end() ? nullptr : found->second;
}

void Engine::deliver(StepResult result, TimePoint now, EngineActions& actions) {
  if (!shape_ || result.epoch != shape_->epoch) return;
  const uint64_t due = in_flight_.empty() ? next_step_id_ : in_flight_.front().step_id;
  if (result.step_id < due) return;  // it failed before, and was settled then
  if (result.status.code() == StatusCode::aborted) {
    give_up(unavailable(result.status.message(), result.status.hint()), actions);
    return;
  }
  if (!result.status.ok() && result.step_id < next_step_id_) {
    fail_step(result, actions);
  } else if (result.step_id == due && !in_flight_.empty()) {
    const StepInFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    front_since_ = now;
    ++counters_.steps_done;
    counters_.busy_ns += result.busy_ns;
    settle(step, result.records, now, actions);
  } else {
    give_up(broken_pipeline(fmt::format("the pipeline answered step {} where step {} was due",
                                        result.step_id, due)),
            actions);
    return;
  }
  pop_failed(now);
}

void Engine::fail_step(const StepResult& result, EngineActions& actions) {
  const auto step = std::find_if(
      in_flight_.begin(), in_flight_.end(),
      [&](const StepInFlight& candidate) { return candidate.step_id == result.step_id; });
  if (step == in_flight_.end()) return;
  step->failed = true;
  for (const RowInFlight& row : step->rows) {
    if (Sequence* sequence = find_live(row.sequence_id)) {
      finish(*sequence, FinishReason::error, result.status, actions);
    }
  }
}

void Engine::pop_failed(TimePoint now) {
  while (!in_flight_.empty() && in_flight_.front().failed) {
    in_flight_.pop_front();
    front_since_ = now;
  }
}

void Engine::settle(const StepInFlight& step, std::vector<TokenRecord>& records, TimePoint now,
                    EngineActions& actions) {
  for (const RowInFlight& row : step.rows) {
    Sequence* sequence = find_live(row.sequence_id);
    if (sequence == nullptr) continue;
    --sequence->rows_in_flight;
    if ((row.flags & StepRow::sample) != 0) --sequence->samples_in_flight;
    if (sequence->request.want_progress && row.end < sequence->prompt_size() &&
        row.end > sequence->progress_reported) {
      sequence->progress_reported = row.end;
      actions.events.push_back(
          {sequence->request_id, sequence->listener, RequestProgress{.computed = row.end}});
    }
  }
  for (TokenRecord& record : records) {
    if (Status wrong = accept(record, now, actions); !wrong.ok()) return give_up(wrong, actions);
  }
  for (const RowInFlight& row : step.rows) {
    Sequence* sequence = find_live(row.sequence_id);
    if (sequence == nullptr) continue;
    // Every sampled row of a sequence that goes on gave a token, or the tail lost one.
    const uint32_t due = sequence->planned + 1 - sequence->samples_in_flight;
    if ((row.flags & StepRow::sample) != 0 && sequence->token_count() < due) {
      give_up(broken_pipeline(fmt::format("step {} came back without the token of position {}",
                                          step.step_id, sequence->token_count())),
              actions);
      return;
    }
    if (sequence->max_new_tokens == 0 && sequence->planned == sequence->prompt_size() &&
        sequence->rows_in_flight == 0) {
      finish(*sequence, FinishReason::length, {}, actions);
    }
  }
}

// An error means that the tail and the engine do not speak of the same sequence any more: no later
// step could be believed either.
Status Engine::accept(TokenRecord& record, TimePoint now, EngineActions& actions) {
  Sequence* sequence = find_live(record.sequence_id);
  if (sequence == nullptr) return ok_status();  // it has ended; this is overshoot
  if (record.end == SequenceEnd::error || !record.error.ok()) {
    Status why = record.error.ok() ? internal_error("the row failed") : std::move(record.error);
    finish(*sequence, FinishReason::error, std::move(why), actions);
    return ok_status();
  }
  if (!record.logits.empty()) report_logits(*sequence, record, actions);
  if (record.end == SequenceEnd::not_ready) {
    postpone(*sequence, now);
    return ok_status();
  }
  if (record.token < 0) return ok_status();
  if (record.position != sequence->token_count() || record.token >= shape_->vocab_size) {
    return broken_pipeline(
        fmt::format("the tail sampled token {} for position {} where position {} was due",
                    record.token, record.position, sequence->token_count()));
  }
  sequence->tokens.push_back(record.token);
  sequence->postponements = 0;
  ++counters_.tokens_sampled;
  if (record.end == SequenceEnd::end_token) {
    sequence->tokens.pop_back();  // not part of the answer
    finish(*sequence, FinishReason::end_token, {}, actions);
    return ok_status();
  }
  actions.events.push_back({sequence->request_id, sequence->listener,
                            RequestToken{.token = record.token,
                                         .position = record.position,
                                         .logprob = record.logprob,
                                         .top = std::move(record.top)}});
  if (sequence->new_tokens() >= sequence->max_new_tokens) {
    finish(*sequence, FinishReason::length, {}, actions);
  } else if (record.end != SequenceEnd::none) {
    return broken_pipeline(fmt::format("the tail ended the sequence after {} of {} tokens",
                                       sequence->new_tokens(), sequence->max_new_tokens));
  }
  return ok_status();
}

// A sequence that was pushed out computes its prompt again, together with what it had sampled: only
// prompt positions that were not reported before are.
void Engine::report_logits(Sequence& sequence, TokenRecord& record, EngineActions& actions) {
  const size_t vocab = static_cast<size_t>(shape_->vocab_size);
  const uint32_t count = static_cast<uint32_t>(record.logits.size() / vocab);
  if (record.logits.size() % vocab != 0 || count > record.position) return;
  const uint32_t begin = record.position - count;
  const uint32_t from = std::max(sequence.logits_reported, begin);
  const uint32_t to = std::min(record.position, sequence.prompt_size());
  if (from >= to) return;
  record.logits.resize((to - begin) * vocab);
  record.logits.erase(record.logits.begin(),
                      record.logits.begin() + static_cast<ptrdiff_t>((from - begin) * vocab));
  sequence.logits_reported = to;
  actions.events.push_back(
      {sequence.request_id, sequence.listener,
       RequestLogits{.position = from, .logits = std::move(record.logits), .count = to - from}});
}

// --- Time ----------------------------------------------------------------------------------------

void Engine::tick(TimePoint now, EngineActions& actions) {
  if (!in_flight_.empty() && now >= front_since_ + in_flight_.front().limit) {
    give_up(
        unavailable(fmt::format("step {} was not answered within {}", in_flight_.front().step_id,
                                human_duration(in_flight_.front().limit)),
                    "see the workers' logs"),
        actions);
    return;
  }
  for (Sequence* sequence : queue_) {
    if (sequence->ready_at && *sequence->ready_at <= now) sequence->ready_at.reset();
  }
  std::vector<Sequence*> late;
  for (const auto& [id, sequence] : requests_) {
    if (sequence->request.deadline && *sequence->request.deadline <= now) {
      late.push_back(sequence.get());
    }
  }
  for (Sequence* sequence : late) {
    finish(*sequence, FinishReason::error,
           deadline_exceeded(fmt::format("the request's deadline passed after {} of {} tokens",
                                         sequence->new_tokens(), sequence->max_new_tokens)),
           actions);
  }
}

std::optional<TimePoint> Engine::next_wakeup() const {
  std::optional<TimePoint> next;
  if (!in_flight_.empty()) next = front_since_ + in_flight_.front().limit;
  const auto not_after = [&next](const std::optional<TimePoint>& time) {
    if (time && (!next || *time < *next)) next = time;
  };
  for (const auto& [id, sequence] : requests_) not_after(sequence->request.deadline);
  for (const Sequence* sequence : queue_) not_after(sequence->ready_at);
  return next;
}

EngineCounters Engine::counters() const {
  EngineCounters counters = counters_;
  counters.queued = static_cast<uint32_t>(queue_.size());
  counters.live = static_cast<uint32_t>(live_.size());
  counters.steps_in_flight = static_cast<uint32_t>(in_flight_.size());
  return counters;
}

}  // namespace strata::coordinator
