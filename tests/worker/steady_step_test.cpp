// The path of every token through a stage, as its thread runs it: check the plan, take the tail's
// token, set the inputs, run the graph on the CPU backend, sample. Once warm it builds no graph,
// allocates nothing but the message that it hands on, and takes no lock but that of the tail's
// tokens.
//
// Method: counts every operator new and every mutex of the process between a step's frame and its
// outcome, hence a binary of its own; real models, frames made beforehand.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>

#include "backends/backends.h"
#include "tests/support/counted_allocations.h"
#include "tests/worker/step_support.h"
#include "worker/stage_runner.h"

#if defined(__SANITIZE_THREAD__)
#define STRATA_COUNTS_LOCKS 0  // it replaces the function itself
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRATA_COUNTS_LOCKS 0
#endif
#endif
#ifndef STRATA_COUNTS_LOCKS
#define STRATA_COUNTS_LOCKS 1
#endif

namespace {
std::atomic<uint64_t> lock_count{0};
}  // namespace

#if STRATA_COUNTS_LOCKS
// In place of the C library's, which it calls.
extern "C" int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> real{nullptr};
  Lock lock = real.load(std::memory_order_relaxed);
  if (lock == nullptr) {
    lock = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
    real.store(lock, std::memory_order_relaxed);
  }
  ++lock_count;
  return lock(mutex);
}
#endif

namespace strata::worker::test {
namespace {

constexpr uint64_t kEpoch = 3;
// Steps of warming up: by then every buffer has met its largest batch.
constexpr uint32_t kWarm = 8;
constexpr uint32_t kSteps = 60;
constexpr uint32_t kPrompt = 5;

struct Counts {
  uint64_t allocations = 0;
  uint64_t locks = 0;
  bool operator==(const Counts&) const = default;
};

void PrintTo(const Counts& counts, std::ostream* out) {
  *out << counts.allocations << " allocations, " << counts.locks << " locks";
}

// What `count` locks look like where they can be counted.
uint64_t locks(uint64_t count) { return STRATA_COUNTS_LOCKS * count; }

template <typename Run>
Counts counts_of(const Run& run) {
  const uint64_t locks_before = lock_count;
  const uint64_t allocations = testing::allocations_of(run);
  return {allocations, lock_count - locks_before};
}

// By the number of threads.
class SteadyStep : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_all(devices_, {}).ok());
    file_ = *GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/llama.gguf");
  }

  std::unique_ptr<StageModel> model(const LayerRange& range) {
    StageOptions options;
    options.range = range;
    options.kv.type = DType::f16;
    options.kv.group_blocks = {32};
    options.max_batch_tokens = 64;
    options.max_sequences = 4;
    options.max_context = 128;
    options.devices = devices_.devices();
    options.backend.threads = GetParam();
    auto loaded = StageModel::load(file_, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    return std::move(*loaded);
  }

  std::unique_ptr<StageRunner> runner(const LayerRange& range) {
    return std::make_unique<StageRunner>(
        model(range), StageRunnerOptions{.name = "w1", .epoch = kEpoch, .slots_max = 4}, feedback_);
  }

  // The prompts of two sequences, one greedy and one with what a chat's sampling takes, then single
  // tokens of both.
  static std::vector<StepFrame> frames(int32_t top_logprobs = 0) {
    Steps steps(kEpoch);
    std::vector<StepFrame> all;
    StepPlan first = steps.next();
    open_slot(first, 0, kPrompt, 1000);
    open_slot(first, 2, kPrompt, 1000);
    first.opens[0].sampling.top_logprobs = top_logprobs;
    SamplingParams& sampling = first.opens[1].sampling;
    sampling.temperature = 0.8F;
    sampling.top_k = 40;
    sampling.top_p = 0.9F;
    sampling.repetition_penalty = 1.1F;
    first.opens[1].history = prompt(kPrompt);
    add_prompt_row(first, 0, kPrompt);
    add_prompt_row(first, 2, kPrompt);
    all.push_back({std::move(first), {}});
    for (uint32_t i = 0; i < kSteps; ++i) {
      StepPlan plan = steps.next();
      add_decode_row(plan, 0, kPrompt + i);
      add_decode_row(plan, 2, kPrompt + i);
      all.push_back({std::move(plan), {}});
    }
    return all;
  }

  // Expects of each step after warming up what `run(frame, counts)` gives.
  template <typename Run>
  static void expect_counts(std::vector<StepFrame> frames, const Counts& wanted, const Run& run) {
    for (size_t i = 0; i < frames.size(); ++i) {
      const Counts counts = run(std::move(frames[i]));
      if (i < kWarm) continue;
      EXPECT_EQ(counts, wanted) << "step " << i;
    }
  }

  DeviceRegistry devices_;
  std::shared_ptr<GgufFile> file_;
  TokenFeedback feedback_{kEpoch, 4};
};

constexpr LayerRange kWhole = {0, 3, true, true};

TEST_P(SteadyStep, TheModelAllocatesNothingAndTakesNoLock) {
  const std::unique_ptr<StageModel> model = this->model(kWhole);
  std::vector<int32_t> table(8);
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i);
  const std::vector<BatchSequence> sequences = {{.tables = {table}}};
  const std::vector<int32_t> first = {0};
  for (int32_t position = 0; position < 64; ++position) {
    const std::vector<int32_t> token = {position % 300 + 3};
    const std::vector<int32_t> positions = {position};
    bool is_ok = false;
    const Counts counts = counts_of([&] {
      is_ok = model
                  ->run({.tokens = token,
                         .activations = {},
                         .positions = positions,
                         .sequence = first,
                         .sequences = sequences,
                         .outputs = first})
                  .ok();
    });
    ASSERT_TRUE(is_ok);
    if (position == 0) continue;  // builds the graph
    EXPECT_EQ(counts, Counts()) << "position " << position;
  }
  EXPECT_EQ(model->graphs_built(), 1U);
}

TEST_P(SteadyStep, AStageAllocatesItsResultOnly) {
  const auto stage = runner(kWhole);
  size_t sampled = 0;
  uint64_t graphs = 0;
  // The list of records; the tail's token of each row is read under its lock.
  expect_counts(frames(), {.allocations = 1, .locks = locks(2)}, [&](StepFrame frame) {
    StepOutcome outcome;
    const Counts counts = counts_of([&] { outcome = stage->run(std::move(frame), std::nullopt); });
    sampled += outcome.result->records.size();
    if (outcome.result->step_id == kWarm) graphs = stage->model().graphs_built();
    feedback_.deliver(std::move(*outcome.result));
    return counts;
  });
  EXPECT_EQ(sampled, 2 * (kSteps + 1));
  EXPECT_EQ(stage->model().graphs_built(), graphs);
}

TEST_P(SteadyStep, AlternativesCostTheListThatCarriesThem) {
  const auto stage = runner(kWhole);
  // Besides the records: the sampler's list of alternatives and the record's.
  expect_counts(frames(5), {.allocations = 3, .locks = locks(2)}, [&](StepFrame frame) {
    StepOutcome outcome;
    const Counts counts = counts_of([&] { outcome = stage->run(std::move(frame), std::nullopt); });
    feedback_.deliver(std::move(*outcome.result));
    return counts;
  });
}

TEST_P(SteadyStep, AHeadAllocatesTheActivationsOnlyAndATailItsResult) {
  const auto head = runner({0, 2, true, false});
  const auto tail = runner({2, 3, false, true});
  expect_counts(frames(), {.allocations = 2, .locks = locks(2)}, [&](StepFrame frame) {
    StepOutcome forward;
    StepOutcome outcome;
    const Counts of_head = counts_of([&] { forward = head->run(std::move(frame), std::nullopt); });
    const Counts of_tail =
        counts_of([&] { outcome = tail->run(std::move(*forward.forward), std::nullopt); });
    feedback_.deliver(std::move(*outcome.result));
    return Counts{of_head.allocations + of_tail.allocations, of_head.locks + of_tail.locks};
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, SteadyStep, ::testing::Values(1, 2));

}  // namespace
}  // namespace strata::worker::test
