// Random steps, good and bad, through a pipeline: nothing crashes or hangs, every step is answered,
// and what was refused leaves no trace.
//
// Method: plans are drawn from small ranges around what is valid, so that many are accepted in part
// of their history and refused in another. After each run all slots are closed, and a fixed
// sequence must give the tokens that it gives in a fresh pipeline. The seed is printed and may be
// set by --gtest_random_seed.
#include <gtest/gtest.h>

#include <random>

#include "backends/backends.h"
#include "tests/worker/step_support.h"
#include "worker/local_pipeline.h"

namespace strata::worker::test {
namespace {

constexpr uint64_t kRandomEpoch = 9;
constexpr uint32_t kSlots = 4;

class RandomPlans {
 public:
  explicit RandomPlans(uint64_t seed) : random_(seed) {}

  StepPlan next(Steps& steps) {
    StepPlan plan = steps.next();
    if (chance(40)) plan.closes.push_back(slot());
    if (chance(50)) open(plan);
    if (chance(10)) plan.block_copies.push_back({below(2), block(), block()});
    while (chance(60)) add_row(plan);
    return plan;
  }

 private:
  bool chance(uint32_t percent) { return random_() % 100 < percent; }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint32_t slot() { return chance(95) ? below(kSlots) : below(10); }
  int32_t block() { return static_cast<int32_t>(below(34)) - 1; }

  void open(StepPlan& plan) {
    const uint32_t target = slot();
    open_slot(plan, target, 1 + below(8), below(6));
    plan.opens.back().sequence_id = next_id_++;
    if (chance(5)) plan.opens.back().sampling.temperature = -1;
    if (chance(30)) plan.opens.back().sampling.presence_penalty = 0.5F;
    if (chance(20)) plan.opens.back().end_ids = {static_cast<int32_t>(below(384))};
    if (chance(20)) {
      for (BlockChange& change : plan.block_changes) change.block = block();
    }
  }

  void add_row(StepPlan& plan) {
    StepRow row;
    row.slot = slot();
    row.position = chance(50) ? 0 : below(130);
    row.count = chance(60) ? 1 : below(70);
    row.flags = below(16);
    if (chance(2)) row.flags = static_cast<uint32_t>(random_());
    plan.rows.push_back(row);
    const uint32_t wanted = (row.flags & StepRow::input_from_tail) != 0 ? 0 : row.count;
    const uint32_t given = chance(97) ? wanted : wanted + 1;
    for (uint32_t i = 0; i < given; ++i) {
      plan.tokens.push_back(chance(99) ? static_cast<int32_t>(below(384)) : 400);
    }
  }

  std::mt19937_64 random_;
  uint64_t next_id_ = 1000;
};

class RandomSteps : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_all(devices_, {}).ok());
    file_ = *GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/llama.gguf");
  }

  std::unique_ptr<LocalPipeline> pipeline(Results& sink) {
    LocalPipelineOptions options;
    options.ranges = *split_layers(3, std::vector<int32_t>{1, 1, 1});
    options.epoch = kRandomEpoch;
    options.slots_max = kSlots;
    options.queue_max = 1000;
    options.stage.kv.type = DType::f32;
    options.stage.kv.group_blocks = {32};
    options.stage.max_batch_tokens = 64;
    options.stage.max_sequences = kSlots;
    options.stage.max_context = 128;
    options.stage.devices = devices_.devices();
    options.stage.backend.threads = 1;
    auto made = LocalPipeline::create(file_, options, sink);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  }

  // Closes every slot and runs one fixed sequence of four tokens.
  static std::vector<int32_t> fixed_tokens(LocalPipeline& pipeline, Steps& steps,
                                           Results& results) {
    StepPlan plan = steps.next();
    const uint64_t first = plan.step_id;
    plan.closes = {0, 1, 2, 3};
    open_slot(plan, 1, 9, 4);
    add_prompt_row(plan, 1, 9);
    pipeline.submit({std::move(plan), {}});
    for (uint32_t i = 0; i < 3; ++i) {
      StepPlan decode = steps.next();
      add_decode_row(decode, 1, 9 + i);
      pipeline.submit({std::move(decode), {}});
    }
    std::vector<int32_t> tokens;
    for (size_t count = 1; tokens.size() < 4; ++count) {
      const StepResult result = results.wait(count)[count - 1];
      if (result.step_id < first) continue;
      EXPECT_TRUE(result.status.ok()) << result.status.to_string();
      if (!result.status.ok()) return {};
      for (const TokenRecord& record : result.records) tokens.push_back(record.token);
    }
    return tokens;
  }

  DeviceRegistry devices_;
  std::shared_ptr<GgufFile> file_;
};

TEST_F(RandomSteps, AreAllAnsweredAndLeaveNoTrace) {
  Results fresh;
  Steps fresh_steps(kRandomEpoch);
  const auto expected = fixed_tokens(*pipeline(fresh), fresh_steps, fresh);
  ASSERT_EQ(expected.size(), 4U);
  const int base = testing::UnitTest::GetInstance()->random_seed();
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE("seed " + std::to_string(base) + ", round " + std::to_string(round));
    RandomPlans plans(static_cast<uint64_t>(base) * 1000 + static_cast<uint64_t>(round));
    Results results;
    const auto target = pipeline(results);
    Steps steps(kRandomEpoch);
    for (int i = 0; i < 200; ++i) target->submit({plans.next(steps), {}});
    ASSERT_EQ(fixed_tokens(*target, steps, results), expected);
    std::vector<int> answers(201, 0);
    size_t accepted = 0;
    for (const StepResult& result : results.wait(0)) {
      if (result.step_id <= 200) ++answers[static_cast<size_t>(result.step_id)];
      accepted += result.status.ok() ? 1 : 0;
    }
    for (size_t step = 1; step <= 200; ++step) EXPECT_GE(answers[step], 1) << "step " << step;
    EXPECT_GT(accepted, 20U) << "too few good steps to mean anything";
    EXPECT_GT(results.wait(0).size() - accepted, 20U) << "too few bad ones";
  }
}

}  // namespace
}  // namespace strata::worker::test
