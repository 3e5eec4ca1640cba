#include "serve/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/clock.h"
#include "runtime/sampling/sampler.h"

namespace strata::serve {

// Slot i of a batch owns blocks [i * blocks_per_sequence, ...) of every group.
void Evaluator::open_sequences(StepPlan& plan, size_t first, size_t count) const {
  for (uint32_t slot = 0; slot < count; ++slot) {
    if (first > 0) plan.closes.push_back(slot);
    OpenSequence& open = plan.opens.emplace_back();
    open.slot = slot;
    open.sequence_id = first + slot;
    for (uint32_t group = 0; group < options_.kv_groups; ++group) {
      for (int32_t i = 0; i < options_.blocks_per_sequence; ++i) {
        plan.block_changes.push_back(
            {.slot = slot,
             .group = group,
             .index = static_cast<uint32_t>(i),
             .block = static_cast<int32_t>(slot) * options_.blocks_per_sequence + i});
      }
    }
  }
}

// A chunk of every sequence of the batch that has tokens left, as far as the step has room.
StepPlan Evaluator::next_step(const std::vector<std::vector<int32_t>>& sequences, size_t first,
                              size_t count, std::span<uint32_t> done) {
  StepPlan plan;
  plan.epoch = epoch_;
  // This step and those before it.
  plan.budget_ms = static_cast<uint32_t>(
      std::chrono::milliseconds(options_.step_timeout * options_.steps_in_flight).count());
  plan.step_id = next_step_id_++;
  uint32_t room = options_.step_tokens;
  for (uint32_t slot = 0; slot < count && room > 0; ++slot) {
    const std::vector<int32_t>& tokens = sequences[first + slot];
    const auto left = static_cast<uint32_t>(tokens.size()) - done[slot];
    const uint32_t n = std::min({options_.chunk, left, room});
    if (n == 0) continue;
    plan.rows.push_back(
        {.slot = slot, .position = done[slot], .count = n, .flags = StepRow::want_logits});
    const auto begin = tokens.begin() + done[slot];
    plan.tokens.insert(plan.tokens.end(), begin, begin + n);
    done[slot] += n;
    room -= n;
  }
  return plan;
}

Status Evaluator::wait_until_in_flight(uint32_t steps) {
  const SystemClock clock;
  const MutexLock lock(mutex_);
  TimePoint deadline = clock.now() + options_.step_timeout;
  uint32_t last = in_flight_;
  while (in_flight_ > steps && status_.ok()) {
    if (in_flight_ != last) deadline = clock.now() + options_.step_timeout;
    last = in_flight_;
    if (!changed_.wait_until(mutex_, deadline) && in_flight_ == last) {
      return deadline_exceeded(
          fmt::format("no step was answered within {} min", options_.step_timeout.count()));
    }
  }
  return status_;
}

Result<std::vector<SequenceResult>> Evaluator::run(
    StepSink& pipeline, const std::vector<std::vector<int32_t>>& sequences) {
  {
    const MutexLock lock(mutex_);
    progress_ = std::vector<Progress>(sequences.size());
  }
  for (size_t first = 0; first < sequences.size(); first += options_.batch) {
    const size_t count = std::min<size_t>(options_.batch, sequences.size() - first);
    std::vector<uint32_t> done(count, 0);
    bool is_first_step = true;
    while (true) {
      StepPlan plan = next_step(sequences, first, count, done);
      if (plan.rows.empty()) {
        --next_step_id_;
        break;
      }
      if (is_first_step) open_sequences(plan, first, count);
      is_first_step = false;
      TRY(wait_until_in_flight(options_.steps_in_flight - 1));
      {
        const MutexLock lock(mutex_);
        ++in_flight_;
      }
      pipeline.submit(StepFrame{.plan = std::move(plan), .activations = {}});
    }
  }
  TRY(wait_until_in_flight(0));
  const MutexLock lock(mutex_);
  std::vector<SequenceResult> results;
  for (Progress& progress : progress_) {
    progress.result.digest = progress.digest.finish();
    results.push_back(std::move(progress.result));
  }
  return results;
}

void Evaluator::take_logits(size_t sequence, std::span<const float> logits) {
  Progress& progress = progress_[sequence];
  const auto n_vocab = static_cast<size_t>(options_.n_vocab);
  progress.digest.update(std::as_bytes(logits));
  for (size_t begin = 0; begin + n_vocab <= logits.size(); begin += n_vocab) {
    const std::span<const float> row = logits.subspan(begin, n_vocab);
    if (options_.on_logits) options_.on_logits(sequence, progress.result.argmax.size(), row);
    // The first of equals: ties go to the lower id.
    progress.result.argmax.push_back(
        static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    if (options_.top > 0) {
      auto& top = progress.result.top.emplace_back();
      for (const TokenLogprob& entry : top_logprobs(row, options_.top)) {
        top.emplace_back(entry.id, entry.logprob);
      }
    }
  }
  const std::span<const float> last = logits.last(n_vocab);
  progress.result.logits_last.assign(last.begin(), last.end());
}

void Evaluator::deliver(StepResult result) {
  const MutexLock lock(mutex_);
  if (status_.ok()) status_ = result.status;
  for (const TokenRecord& record : result.records) {
    if (status_.ok()) status_ = record.error;
    if (!status_.ok()) break;
    if (record.sequence_id >= progress_.size() ||
        record.logits.size() % static_cast<size_t>(options_.n_vocab) != 0 ||
        record.logits.empty()) {
      status_ = internal_error("a result that was not asked for");
      break;
    }
    take_logits(static_cast<size_t>(record.sequence_id), record.logits);
  }
  if (in_flight_ > 0) --in_flight_;
  changed_.notify_all();
}

void Evaluator::fail(const Status& status) {
  const MutexLock lock(mutex_);
  if (status_.ok()) status_ = status;
  changed_.notify_all();
}

}  // namespace strata::serve
