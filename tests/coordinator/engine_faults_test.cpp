// What the engine does with results that cannot be, and with records that do not fit a step
// together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "coordinator/engine/engine.h"

namespace strata::coordinator {
namespace {

PipelineShape shape_of_faults() {
  PipelineShape shape;
  shape.epoch = 7;
  shape.groups = {{.window = 0, .block_count = 256}};
  shape.context = 400;
  shape.vocab_size = 97;
  shape.slots = 8;
  shape.step_tokens = 64;
  return shape;
}

Request short_request() {
  Request request;
  request.prompt = {1, 2, 3, 4};
  request.max_new_tokens = 9;
  return request;
}

// What no later step could mend ends the pipeline, so that the cluster makes a new one: a result
// without the token that was due, a token for another position, a step out of order.
class BrokenResults : public ::testing::Test {
 protected:
  // The engine's answer to the first step's result, as `change` makes it.
  EngineActions answer_to(const std::function<void(StepResult&)>& change) {
    Engine engine({});
    engine.attach(shape_of_faults());
    EngineActions actions;
    engine.submit(
        1, short_request(),
        [this](const RequestEvent& event) {
          if (const auto* finish = std::get_if<RequestFinish>(&event)) finish_ = *finish;
        },
        TimePoint(), actions);
    engine.plan(TimePoint(), actions);
    EXPECT_FALSE(actions.steps.empty());
    const StepPlan& plan = actions.steps[0];
    StepResult result{
        .epoch = plan.epoch, .step_id = plan.step_id, .records = {}, .status = {}, .busy_ns = 0};
    result.records.resize(1);
    result.records[0].sequence_id = plan.opens.at(0).sequence_id;
    result.records[0].position = 4;
    result.records[0].token = 5;
    change(result);
    EngineActions answer;
    engine.deliver(std::move(result), TimePoint(), answer);
    for (const ClientEvent& event : answer.events) event.listener(event.event);
    EXPECT_EQ(engine.attached(), !answer.pipeline_failed);
    return answer;
  }
  std::optional<RequestFinish> finish_;
};

TEST_F(BrokenResults, EndThePipeline) {
  EXPECT_FALSE(answer_to([](StepResult&) {}).pipeline_failed);
  EXPECT_FALSE(finish_.has_value());
  EngineActions actions = answer_to([](StepResult& result) { result.records.clear(); });
  EXPECT_TRUE(actions.pipeline_failed);
  EXPECT_EQ(actions.failed_epoch, 7U);
  EXPECT_THAT(actions.failure.message(), ::testing::HasSubstr("without the token of position 4"));
  ASSERT_TRUE(finish_.has_value());
  EXPECT_EQ(finish_->status.message(), actions.failure.message());
  EXPECT_TRUE(
      answer_to([](StepResult& result) { result.records[0].position = 9; }).pipeline_failed);
  EXPECT_TRUE(answer_to([](StepResult& result) { result.step_id = 1000; }).pipeline_failed);
  EXPECT_TRUE(answer_to([](StepResult& result) {
                result.step_id = 1000;
                result.status = internal_error("so it says");
              }).pipeline_failed);
}

TEST_F(BrokenResults, AStageThatLostAStepEndsThePipelineAndNotTheRequestAlone) {
  const EngineActions actions = answer_to([](StepResult& result) {
    result.records.clear();
    result.status = Status(StatusCode::aborted, "w1: step 1 came after step 7");
  });
  EXPECT_TRUE(actions.pipeline_failed);
  EXPECT_EQ(actions.failure.code(), StatusCode::unavailable);
  EXPECT_THAT(actions.failure.message(), ::testing::HasSubstr("step 1 came after step 7"));
}

// Each is within its limits; together they would not fit a frame's record.
TEST(Engine, OpensThatDoNotFitAStepTogetherWaitForTheNext) {
  PipelineShape shape = shape_of_faults();
  shape.vocab_size = 100'000;
  shape.step_tokens = 512;
  Engine engine({});
  engine.attach(shape);
  EngineActions actions;
  Request heavy = short_request();
  for (int32_t id = 0; id < 100'000; ++id) heavy.sampling.logit_bias.emplace_back(id, 1.5F);
  for (RequestId id = 1; id <= 5; ++id) engine.submit(id, heavy, {}, TimePoint(), actions);
  engine.submit(6, short_request(), {}, TimePoint(), actions);
  engine.plan(TimePoint(), actions);
  ASSERT_TRUE(actions.events.empty());
  ASSERT_EQ(actions.steps.size(), 2U);
  for (const StepPlan& plan : actions.steps) {
    size_t entries = 0;
    for (const OpenSequence& open : plan.opens) entries += open.sampling.logit_bias.size();
    EXPECT_EQ(entries, 100'000U) << "one heavy one at a time";
  }
  EXPECT_EQ(actions.steps[0].opens.size(), 2U) << "a light one goes beside it";
  // One entry for each token of the vocabulary, and no more.
  heavy.sampling.logit_bias.emplace_back(7, 1.5F);
  std::optional<RequestFinish> refused;
  engine.submit(
      7, heavy, [&](const RequestEvent& event) { refused = std::get<RequestFinish>(event); },
      TimePoint(), actions);
  for (const ClientEvent& event : actions.events) event.listener(event.event);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(refused->status.message(),
              ::testing::HasSubstr("100001 entries, and the vocabulary 100000"));
}

}  // namespace
}  // namespace strata::coordinator
