// Steps for tests of stages: plans made in a few words, and sinks that collect.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/mutex.h"
#include "runtime/model/step.h"

namespace strata::worker::test {

// Numbers the steps of one epoch. Threads: externally synchronised.
class Steps {
 public:
  explicit Steps(uint64_t epoch) : epoch_(epoch) {}
  StepPlan next() {
    StepPlan plan;
    plan.epoch = epoch_;
    plan.step_id = ++last_;
    return plan;
  }

 private:
  uint64_t epoch_;
  uint64_t last_ = 0;
};

inline std::vector<int32_t> prompt(uint32_t count) {
  std::vector<int32_t> tokens;
  for (uint32_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>(i * 29 + 17) % 380);
  return tokens;
}

// Greedy, sequence 100 + slot, with eight blocks of its own in group 0.
inline void open_slot(StepPlan& plan, uint32_t slot, uint32_t prompt_tokens, uint32_t new_tokens) {
  OpenSequence& open = plan.opens.emplace_back();
  open.slot = slot;
  open.sequence_id = 100 + slot;
  open.prompt_tokens = prompt_tokens;
  open.max_new_tokens = new_tokens;
  open.sampling.temperature = 0;
  for (uint32_t i = 0; i < 8; ++i) {
    plan.block_changes.push_back({slot, 0, i, static_cast<int32_t>(slot * 8 + i)});
  }
}

inline void add_prompt_row(StepPlan& plan, uint32_t slot, uint32_t count) {
  plan.rows.push_back({.slot = slot, .position = 0, .count = count, .flags = StepRow::sample});
  for (const int32_t id : prompt(count)) plan.tokens.push_back(id);
}

// The first step of a sequence: slot 0, a prompt of 5 tokens, 9 new ones at most.

inline StepPlan prompt_step(Steps& steps) {
  StepPlan plan = steps.next();
  open_slot(plan, 0, 5, 9);
  add_prompt_row(plan, 0, 5);
  return plan;
}

inline void add_decode_row(StepPlan& plan, uint32_t slot, uint32_t position) {
  plan.rows.push_back({.slot = slot,
                       .position = position,
                       .count = 1,
                       .flags = StepRow::sample | StepRow::input_from_tail});
}

// Keeps what it is given; wait() returns when at least `count` have come. Threads: any.
template <typename T>
class Collector {
 public:
  void add(T item) {
    const MutexLock lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_all();
  }
  std::vector<T> wait(size_t count) {
    const MutexLock lock(mutex_);
    while (items_.size() < count) changed_.wait(mutex_);
    return items_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<T> items_ STRATA_GUARDED_BY(mutex_);
};

class Results final : public ResultSink, public Collector<StepResult> {
 public:
  void deliver(StepResult result) override { add(std::move(result)); }
};

class Frames final : public StepSink, public Collector<StepFrame> {
 public:
  void submit(StepFrame frame) override { add(std::move(frame)); }
};

}  // namespace strata::worker::test
