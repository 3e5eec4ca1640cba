// LocalStage: steps through one and several stages, sampled tokens back to the head, ended rows,
// and everything a peer or a coordinator could get wrong.
//
// Method: real stages over a tiny model; a collecting sink in place of the coordinator, a
// collecting next stage where a stage is looked at alone. What one stage gives is the oracle for
// several.
#include "worker/local_stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "backends/backends.h"
#include "runtime/base/mutex.h"
#include "tests/worker/step_support.h"
#include "worker/local_pipeline.h"

namespace strata::worker::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kEpoch = 3;

class LocalStageTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_all(devices_, {}).ok());
    file_ = *GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/llama.gguf");
    options_.kv.type = DType::f32;
    options_.kv.group_blocks = {32};
    options_.max_batch_tokens = 64;
    options_.max_sequences = 4;
    options_.max_context = 128;
    options_.devices = devices_.devices();
    options_.backend.threads = 1;
  }

  std::unique_ptr<LocalPipeline> pipeline(std::vector<int32_t> counts, Results& sink) {
    LocalPipelineOptions options;
    options.ranges = *split_layers(3, counts);
    options.stage = options_;
    options.epoch = kEpoch;
    options.slots_max = 4;
    auto made = LocalPipeline::create(file_, options, sink);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(*made) : nullptr;
  }

  std::unique_ptr<LocalStage> stage(const LayerRange& range, StepSink* next, ResultSink* sink,
                                    uint32_t queue_max = 16) {
    StageOptions options = options_;
    options.range = range;
    auto model = StageModel::load(file_, options);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    auto made = LocalStage::create(
        std::move(*model), {.name = "w1", .epoch = kEpoch, .slots_max = 4, .queue_max = queue_max});
    EXPECT_TRUE(made.ok());
    const Status connected = (*made)->connect({.next = next, .sinks = {sink}});
    EXPECT_TRUE(connected.ok()) << connected.to_string();
    return std::move(*made);
  }

  DeviceRegistry devices_;
  std::shared_ptr<GgufFile> file_;
  StageOptions options_;
};

constexpr LayerRange kHead = {0, 1, true, false};
constexpr LayerRange kMiddle = {1, 2, false, false};
constexpr LayerRange kTail = {2, 3, false, true};

// Two sequences of different lengths that end at different steps, sampled with a temperature.
std::vector<std::vector<int32_t>> two_sequences(LocalPipeline& pipeline, Results& results) {
  Steps steps(kEpoch);
  StepPlan first = steps.next();
  open_slot(first, 0, 5, 12);
  open_slot(first, 2, 9, 5);
  first.opens[0].sampling.temperature = 0.8F;
  first.opens[0].sampling.repetition_penalty = 1.3F;
  first.opens[0].history = prompt(5);
  first.opens[0].sampling.seed = 11;
  add_prompt_row(first, 0, 5);
  add_prompt_row(first, 2, 9);
  pipeline.submit({std::move(first), {}});
  for (uint32_t i = 0; i < 12; ++i) {  // past the end of both
    StepPlan plan = steps.next();
    add_decode_row(plan, 0, 5 + i);
    add_decode_row(plan, 2, 9 + i);
    pipeline.submit({std::move(plan), {}});
  }
  const std::vector<StepResult> all = results.wait(13);
  std::vector<std::vector<int32_t>> tokens(3);
  for (const StepResult& result : all) {
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    for (const TokenRecord& record : result.records) tokens[record.slot].push_back(record.token);
  }
  return tokens;
}

TEST_F(LocalStageTest, SeveralStagesSampleTheTokensOfOne) {
  Results alone;
  const auto expected = two_sequences(*pipeline({3}, alone), alone);
  EXPECT_EQ(expected[0].size(), 12U);
  EXPECT_EQ(expected[2].size(), 5U) << "dead rows sample nothing";
  for (const std::vector<int32_t>& split :
       {std::vector<int32_t>{1, 1, 1}, {0, 3}, {3, 0}, {0, 1, 2, 0}, {2, 1}}) {
    Results results;
    EXPECT_EQ(two_sequences(*pipeline(split, results), results), expected);
  }
}

TEST_F(LocalStageTest, ASequenceEndsAtItsEndTokenOrLength) {
  Results probe;
  const auto tokens = two_sequences(*pipeline({3}, probe), probe);
  Results results;
  const auto two = pipeline({1, 2}, results);
  Steps steps(kEpoch);
  StepPlan plan = steps.next();
  open_slot(plan, 2, 9, 100);
  plan.opens[0].end_ids = {tokens[2][1]};
  add_prompt_row(plan, 2, 9);
  two->submit({std::move(plan), {}});
  for (uint32_t i = 0; i < 3; ++i) {
    StepPlan decode = steps.next();
    add_decode_row(decode, 2, 9 + i);
    two->submit({std::move(decode), {}});
  }
  const auto all = results.wait(4);
  EXPECT_EQ(all[0].records[0].end, SequenceEnd::none);
  EXPECT_EQ(all[0].records[0].position, 9U);
  EXPECT_EQ(all[1].records[0].end, SequenceEnd::end_token);
  EXPECT_THAT(all[2].records, IsEmpty());
  EXPECT_THAT(all[3].records, IsEmpty());
}

TEST_F(LocalStageTest, AClosedSlotServesTheNextSequence) {
  Results results;
  const auto two = pipeline({1, 2}, results);
  Steps steps(kEpoch);
  std::vector<int32_t> tokens;
  for (int round = 0; round < 3; ++round) {
    StepPlan plan = steps.next();
    if (round > 0) plan.closes = {1};
    open_slot(plan, 1, 7, 1);
    add_prompt_row(plan, 1, 7);
    two->submit({std::move(plan), {}});
  }
  const auto all = results.wait(3);
  for (const StepResult& result : all) {
    ASSERT_EQ(result.records.size(), 1U) << result.status.to_string();
    EXPECT_EQ(result.records[0].end, SequenceEnd::length);
    EXPECT_EQ(result.records[0].token, all[0].records[0].token);
  }
}

TEST_F(LocalStageTest, AnEmptyStepGivesAnEmptyResult) {
  Results results;
  const auto two = pipeline({1, 2}, results);
  Steps steps(kEpoch);
  two->submit({steps.next(), {}});
  const auto all = results.wait(1);
  EXPECT_TRUE(all[0].status.ok());
  EXPECT_EQ(all[0].step_id, 1U);
  EXPECT_THAT(all[0].records, IsEmpty());
}

TEST_F(LocalStageTest, RefusesOtherEpochsAndGaps) {
  Results results;
  Frames frames;
  const auto head = stage(kHead, &frames, &results);
  Steps old(kEpoch - 1);
  head->submit({old.next(), {}});
  StepPlan later = Steps(kEpoch).next();
  later.step_id = 2;
  head->submit({later, {}});
  head->submit({Steps(kEpoch).next(), {}});
  frames.wait(1);
  const auto all = results.wait(2);
  EXPECT_EQ(all[0].status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(all[0].status.message(), AllOf(HasSubstr("w1"), HasSubstr("fenced: epoch 2 < 3")));
  EXPECT_THAT(all[1].status.message(), HasSubstr("step 2 came after step 0"));
}

// A change to a good step of one token after five, and what is said about it.
struct BadStep {
  std::function<void(StepPlan&)> change;
  const char* text;
};
const std::vector<BadStep> kBadSteps = {
    {[](StepPlan& p) { p.rows[0].slot = 4; }, "row of slot 4, slots are 0 to 3"},
    {[](StepPlan& p) { p.rows[0].slot = 2; }, "slot 2, which holds no sequence"},
    {[](StepPlan& p) { p.rows.push_back(p.rows[0]); }, "two rows of slot 0"},
    {[](StepPlan& p) { p.rows[0].count = 0; }, "row of 0 tokens"},
    {[](StepPlan& p) { p.rows[0].count = 65; }, "a step of 65 tokens"},
    {[](StepPlan& p) { p.rows[0].count = 0x7fffffff; }, "the context is 128"},
    {[](StepPlan& p) { p.rows[0].position = 0xffffffff; }, "the context is 128"},
    {[](StepPlan& p) { p.rows[0].position = 6; }, "position 6 of slot 0, whose KV reaches to 5"},
    {[](StepPlan& p) { p.rows[0].flags = 64; }, "row flags 0x40"},
    {[](StepPlan& p) { p.tokens.clear(); }, "0 token ids, the rows need 1"},
    {[](StepPlan& p) { p.tokens = {384}; }, "token id 384"},
    {[](StepPlan& p) { p.closes = {9}; }, "close of slot 9"},
    {[](StepPlan& p) { p.opens.resize(1); }, "slot 0 is opened for sequence 0 while"},
    {[](StepPlan& p) {
       p.opens.resize(1);
       p.opens[0].slot = 1;
       p.opens[0].sampling.top_p = 2;
     },
     "top_p"},
    {[](StepPlan& p) {
       p.opens.resize(1);
       p.opens[0].slot = 1;
       p.opens[0].history = {-5};
     },
     "token id -5 in the history"},
    {[](StepPlan& p) {
       p.opens.resize(1);
       p.opens[0].slot = 1;
       p.opens[0].history = {5};
       p.opens[0].answer_tokens = 2;
     },
     "2 tokens of the answer in a history of 1"},
    {[](StepPlan& p) {
       p.block_changes = {{0, 0, 0, 32}};
     },
     "block change to block 32"},
    {[](StepPlan& p) {
       p.block_changes = {{0, 1, 0, 0}};
     },
     "KV group 1 of 1"},
    {[](StepPlan& p) {
       p.block_changes = {{0, 0, 8, 0}};
     },
     "a table 8 entries"},
    {[](StepPlan& p) {
       p.block_changes = {{0, 0, 0, -1}};
     },
     "at table entry 0"},
    {[](StepPlan& p) {
       p.block_copies = {{0, 0, 99}};
     },
     "block copy from 0 to 99"},
    {[](StepPlan& p) {
       p.rows[0].flags = StepRow::input_from_tail;
       p.tokens.clear();
     },
     "none was sampled"},
};

class BadSteps : public LocalStageTest, public testing::WithParamInterface<BadStep> {};

// Each bad step is refused with a reason, goes on without rows, and the next good one runs.
TEST_P(BadSteps, AreRefusedAndTheNextOneRuns) {
  Results results;
  Frames frames;
  const auto head = stage(kHead, &frames, &results);
  Steps steps(kEpoch);
  StepPlan first = prompt_step(steps);
  first.rows[0].flags = 0;
  head->submit({std::move(first), {}});
  StepPlan bad = steps.next();
  bad.rows = {{.slot = 0, .position = 5, .count = 1, .flags = 0}};
  bad.tokens = {3};
  GetParam().change(bad);
  head->submit({std::move(bad), {}});
  StepPlan good = steps.next();
  open_slot(good, 3, 4, 9);
  add_prompt_row(good, 3, 4);
  head->submit({std::move(good), {}});
  const auto forwarded = frames.wait(3);
  EXPECT_THAT(results.wait(1)[0].status.message(), HasSubstr(GetParam().text));
  EXPECT_EQ(forwarded[1].plan.live_tokens(), 0U);
  EXPECT_EQ(forwarded[1].plan.step_id, 2U);
  EXPECT_EQ(forwarded[2].activations.size(), 4U * 128);
}

INSTANTIATE_TEST_SUITE_P(Kinds, BadSteps, testing::ValuesIn(kBadSteps));

TEST_F(LocalStageTest, RefusesActivationsOfAnotherSize) {
  Results results;
  const auto tail = stage(kTail, nullptr, &results);
  Steps steps(kEpoch);
  StepPlan plan = prompt_step(steps);
  tail->submit({std::move(plan), std::vector<float>(5 * 128 - 1)});
  const auto all = results.wait(1);
  EXPECT_EQ(all[0].status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(all[0].status.message(), AllOf(HasSubstr("2556 bytes"), HasSubstr("need 2560")));
}

TEST_F(LocalStageTest, NonFiniteActivationsFailTheirRowOnly) {
  const auto records = [&](float bad) {
    Results results;
    const auto tail = stage(kTail, nullptr, &results);
    StepPlan plan = Steps(kEpoch).next();
    open_slot(plan, 0, 2, 9);
    open_slot(plan, 1, 2, 9);
    add_prompt_row(plan, 0, 2);
    add_prompt_row(plan, 1, 2);
    std::vector<float> activations(4 * 128);
    for (size_t i = 0; i < activations.size(); ++i) activations[i] = std::sin(float(i));
    activations[130] = bad;
    tail->submit({std::move(plan), std::move(activations)});
    return results.wait(1)[0].records;
  };
  const auto sound = records(0.5F);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const auto found = records(bad);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_EQ(found[0].end, SequenceEnd::error);
    EXPECT_EQ(found[0].token, -1);
    EXPECT_THAT(found[0].error.message(), HasSubstr("non-finite logits"));
    EXPECT_TRUE(found[1].error.ok());
    EXPECT_EQ(found[1].token, sound[1].token);
  }
}

// A stage whose layers make an infinity says so, the tail's result ends that sequence with its
// words, and the other one goes on.
TEST_F(LocalStageTest, NonFiniteNumbersAreFoundByTheStageThatMadeThem) {
  const auto first_rows = [](Steps& steps) {
    StepPlan plan = steps.next();
    open_slot(plan, 0, 2, 9);
    open_slot(plan, 1, 2, 9);
    add_prompt_row(plan, 0, 2);
    add_prompt_row(plan, 1, 2);
    return plan;
  };
  Results head_results;
  Frames frames;
  const auto middle = stage(kMiddle, &frames, &head_results);
  Steps steps(kEpoch);
  StepPlan plan = first_rows(steps);
  std::vector<float> activations(4 * 128);
  for (size_t i = 0; i < activations.size(); ++i) activations[i] = std::sin(float(i));
  activations[130] = std::numeric_limits<float>::infinity();  // of the first sequence
  middle->submit({plan, activations});
  StepFrame passed = frames.wait(1)[0];
  ASSERT_EQ(passed.plan.row_failures.size(), 1U);
  EXPECT_EQ(passed.plan.row_failures[0].row, 0U);
  EXPECT_TRUE(passed.plan.rows[0].flags & StepRow::dead);
  EXPECT_EQ(passed.activations.size(), 2U * 128) << "its columns stay behind";
  const Status why = passed.plan.row_failures[0].why;
  EXPECT_EQ(why.code(), StatusCode::data_loss);
  EXPECT_THAT(why.message(), HasSubstr("w1: sequence 100: the layers made a NaN or an infinity"));
  EXPECT_THAT(why.hint(), HasSubstr("the model file is damaged"));

  Results results;
  const auto tail = stage(kTail, nullptr, &results);
  tail->submit(std::move(passed));
  const auto records = results.wait(1)[0].records;
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].slot, 0U);
  EXPECT_EQ(records[0].end, SequenceEnd::error);
  EXPECT_EQ(records[0].error.to_string(), why.to_string());
  EXPECT_EQ(records[1].slot, 1U);
  EXPECT_TRUE(records[1].error.ok());
  EXPECT_GE(records[1].token, 0);

  // The stage that found it runs no later row of the sequence.
  StepPlan next = steps.next();
  add_decode_row(next, 0, 2);
  add_decode_row(next, 1, 2);
  middle->submit({next, std::vector<float>(2 * 128, 0.5F)});
  const StepFrame second = frames.wait(2)[1];
  EXPECT_TRUE(second.plan.rows[0].flags & StepRow::dead);
  EXPECT_TRUE(second.plan.row_failures.empty()) << "said once";
  EXPECT_EQ(second.activations.size(), 128U);
}

TEST_F(LocalStageTest, WaitsForTheTailNoLongerThanTheStepMay) {
  Results results;
  Frames frames;
  const auto head = stage(kHead, &frames, &results);
  Steps steps(kEpoch);
  StepPlan first = prompt_step(steps);
  head->submit({std::move(first), {}});
  StepPlan second = steps.next();
  second.budget_ms = 20;
  add_decode_row(second, 0, 5);
  head->submit({std::move(second), {}});  // no tail answers
  const auto all = results.wait(1);
  EXPECT_EQ(all[0].status.code(), StatusCode::deadline_exceeded);
  EXPECT_THAT(all[0].status.message(), HasSubstr("position 5"));
}

TEST_F(LocalStageTest, AStepThatFailedElsewhereEndsTheWait) {
  Results results;
  Frames frames;
  const auto head = stage(kHead, &frames, &results);
  Steps steps(kEpoch);
  StepPlan first = prompt_step(steps);
  head->submit({std::move(first), {}});
  StepPlan second = steps.next();
  add_decode_row(second, 0, 5);
  head->submit({std::move(second), {}});
  head->token_sink().deliver(
      {.epoch = kEpoch, .step_id = 1, .records = {}, .status = unavailable("lost w2")});
  const auto forwarded = frames.wait(2);
  EXPECT_EQ(forwarded[1].plan.rows[0].flags & StepRow::dead, StepRow::dead);
  EXPECT_THAT(forwarded[1].activations, IsEmpty());
}

TEST_F(LocalStageTest, AFailureRidesInTheFrameToTheTail) {
  Results tail_results;
  Results middle_results;
  const auto tail = stage(kTail, nullptr, &tail_results);
  const auto middle = stage(kMiddle, tail.get(), &middle_results);
  Steps steps(kEpoch);
  StepPlan failed = prompt_step(steps);
  failed.failure = data_loss("w0: step 1: the weights are gone", "look at the disk");
  failed.busy_ns = 5;
  middle->submit({std::move(failed), {}});
  StepPlan good = steps.next();
  open_slot(good, 1, 4, 9);
  add_prompt_row(good, 1, 4);
  good.busy_ns = 1'000'000'000;
  middle->submit({std::move(good), std::vector<float>(4 * 128, 0.25F)});
  const auto all = tail_results.wait(2);
  EXPECT_EQ(all[0].step_id, 1U);
  EXPECT_EQ(all[0].status.code(), StatusCode::data_loss);
  EXPECT_EQ(all[0].status.message(), "w0: step 1: the weights are gone");
  EXPECT_EQ(all[0].status.hint(), "look at the disk");
  EXPECT_THAT(all[0].records, IsEmpty());
  EXPECT_TRUE(all[1].status.ok()) << all[1].status.to_string();
  EXPECT_EQ(all[1].records.size(), 1U);
  EXPECT_GT(all[1].busy_ns, 1'000'000'000U) << "what the stages computed adds up";
  middle->stop();
  EXPECT_EQ(middle->counters().steps_done, 2U);
  EXPECT_THAT(middle_results.wait(0), IsEmpty()) << "the stage that failed has told it";
}

TEST_F(LocalStageTest, AFailureIsToldTwiceAndTheSequenceCanBeClosed) {
  Results results;
  const auto three = pipeline({1, 1, 1}, results);
  Steps steps(kEpoch);
  StepPlan bad = prompt_step(steps);
  bad.tokens[2] = 384;
  three->submit({std::move(bad), {}});
  StepPlan good = steps.next();
  open_slot(good, 1, 4, 9);
  add_prompt_row(good, 1, 4);
  three->submit({std::move(good), {}});
  const auto all = results.wait(3);
  EXPECT_THAT(all[0].status.message(), HasSubstr("token id 384"));
  EXPECT_EQ(all[1].step_id, 1U) << "the tail's, in its turn";
  EXPECT_EQ(all[1].status.message(), all[0].status.message());
  EXPECT_TRUE(all[2].status.ok());
  EXPECT_EQ(all[2].records.size(), 1U);
}

TEST_F(LocalStageTest, WaitingForTheTailIsNotComputing) {
  Results results;
  Frames frames;
  const auto head = stage(kHead, &frames, &results);
  Steps steps(kEpoch);
  StepPlan first = prompt_step(steps);
  head->submit({std::move(first), {}});
  frames.wait(1);
  StepPlan second = steps.next();
  second.budget_ms = 300;
  add_decode_row(second, 0, 5);
  head->submit({std::move(second), {}});  // no tail answers
  while (!head->counters().awaiting_token) std::this_thread::yield();
  const StageCounters waiting = head->counters();
  EXPECT_TRUE(waiting.has_step);
  EXPECT_EQ(waiting.step_id, 2U);
  EXPECT_EQ(waiting.step_tokens, 1U);
  results.wait(1);
  head->stop();
  const StageCounters after = head->counters();
  EXPECT_FALSE(after.awaiting_token);
  EXPECT_FALSE(after.has_step);
  EXPECT_LT(after.busy_ns - waiting.busy_ns, 200'000'000U);
  EXPECT_GT(after.progress, waiting.progress);
}

TEST_F(LocalStageTest, StopsAtOnceWhileItWaits) {
  Results results;
  Frames frames;
  auto head = stage(kHead, &frames, &results);
  Steps steps(kEpoch);
  StepPlan first = prompt_step(steps);
  head->submit({std::move(first), {}});
  StepPlan second = steps.next();
  add_decode_row(second, 0, 5);
  head->submit({std::move(second), {}});
  frames.wait(1);
  head->stop();
  head->submit({steps.next(), {}});  // no effect
  head.reset();
}

TEST_F(LocalStageTest, RefusesMoreStepsThanItsQueueHolds) {
  Results results;
  Frames frames;
  const auto head = stage(kHead, &frames, &results, 2);
  Steps steps(kEpoch);
  StepPlan first = prompt_step(steps);
  head->submit({std::move(first), {}});
  frames.wait(1);
  StepPlan waiting = steps.next();
  add_decode_row(waiting, 0, 5);
  head->submit({std::move(waiting), {}});  // keeps the stage thread busy
  for (int i = 0; i < 4; ++i) head->submit({steps.next(), {}});
  StepResult token;
  token.epoch = kEpoch;
  token.step_id = 1;
  token.records.resize(1);
  token.records[0].sequence_id = 100;
  token.records[0].position = 5;
  token.records[0].token = 7;
  head->token_sink().deliver(std::move(token));
  frames.wait(3);
  EXPECT_EQ(results.wait(1)[0].status.code(), StatusCode::resource_exhausted);
}

TEST_F(LocalStageTest, RefusesWiringThatDoesNotFit) {
  StageOptions options = options_;
  options.range = kMiddle;
  auto model = StageModel::load(file_, options);
  auto made = LocalStage::create(std::move(*model), {.epoch = kEpoch});
  ASSERT_TRUE(made.ok());
  Results results;
  const Status status = (*made)->connect({.next = nullptr, .sinks = {&results}});
  EXPECT_THAT(status.message(), HasSubstr("has not a next stage"));
}

TEST(SplitLayers, GivesRangesThatCoverTheModel) {
  const auto ranges = split_layers(30, std::vector<int32_t>{10, 12, 8});
  ASSERT_TRUE(ranges.ok());
  EXPECT_EQ((*ranges)[1], (LayerRange{10, 22, false, false}));
  EXPECT_TRUE((*ranges)[0].has_embedding);
  EXPECT_TRUE((*ranges)[2].has_head);
  EXPECT_THAT(split_layers(30, std::vector<int32_t>{10, 12}).status().message(),
              HasSubstr("add up to the model's 30"));
  EXPECT_THAT(split_layers(30, std::vector<int32_t>{31, -1}).status().message(),
              HasSubstr("add up to the model's 30"));
  EXPECT_THAT(split_layers(30, std::vector<int32_t>{10, 0, 20}).status().message(),
              HasSubstr("stage 2 of the split has no layer"));
  EXPECT_FALSE(split_layers(30, std::vector<int32_t>{}).ok());
}

}  // namespace
}  // namespace strata::worker::test
