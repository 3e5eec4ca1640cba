// What comes in before, between and after stages is refused by epoch, in words.
#include "worker/step_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/backends.h"
#include "runtime/gguf/gguf_file.h"
#include "runtime/model/stage_model.h"

namespace strata::worker {
namespace {

using ::testing::HasSubstr;

StepFrame step_of(uint64_t epoch) {
  StepFrame frame;
  frame.plan.epoch = epoch;
  return frame;
}

TEST(StepService, FencesWhatIsOldAndWhatIsEarly) {
  StepService service({});
  EXPECT_THAT(service.on_step("a", step_of(1)).message(), HasSubstr("epoch 1 has not begun"));
  service.clear(4);
  EXPECT_EQ(service.on_step("a", step_of(3)).message(), "fenced: epoch 3 < 4");
  EXPECT_THAT(service.on_step("a", step_of(4)).message(), HasSubstr("epoch 4 has not begun"));
  StepResult result;
  result.epoch = 2;
  EXPECT_EQ(service.on_result("a", result).code(), StatusCode::failed_precondition);
  service.clear(2);  // an epoch never goes back
  EXPECT_EQ(service.on_step("a", step_of(3)).message(), "fenced: epoch 3 < 4");
}

remote::StreamCaller caller_of(uint64_t epoch, const std::string& name, const std::string& key,
                               remote::StreamMethod method = remote::StreamMethod::steps) {
  return {.method = method, .name = name, .epoch = epoch, .key = key};
}

TEST(StepService, ABrokenStreamIsNoLossWhenNothingRuns) {
  int told = 0;
  StepService service([&](uint64_t, const std::string&, const Status&) { ++told; });
  service.on_stream_closed(caller_of(0, "a", ""), unavailable("broke"));
  EXPECT_EQ(told, 0);
}

// A stage of the tiny model, alone: head and tail.
class RunningService : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_all(devices_, {}).ok());
    const std::shared_ptr<GgufFile> file =
        *GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/llama.gguf");
    StageOptions options;
    options.range = {0, 3, true, true};
    options.kv.group_blocks = {32};
    options.max_batch_tokens = 64;
    options.max_sequences = 4;
    options.max_context = 128;
    options.devices = devices_.devices();
    options.backend.threads = 1;
    auto running = std::make_shared<RunningStage>();
    running->epoch = 5;
    running->stage = LocalStage::create(StageModel::load(file, options).value(),
                                        {.name = "w", .epoch = 5, .slots_max = 4})
                         .value();
    ASSERT_TRUE(running->stage->connect({.next = nullptr, .sinks = {}}).ok());
    service_.expect({.epoch = 5, .key = "key", .steps_from = {"c"}, .results_from = {"t"}});
    service_.set(std::move(running));
  }
  static StepFrame step(uint64_t id) {
    StepFrame frame = step_of(5);
    frame.plan.step_id = id;
    return frame;
  }

  DeviceRegistry devices_;
  std::vector<std::string> lost_;
  StepService service_{
      [this](uint64_t, const std::string& peer, const Status&) { lost_.push_back(peer); }};
};

TEST_F(RunningService, TakesStepsAndResultsInOrderOnly) {
  EXPECT_THAT(service_.on_step("c", step(2)).message(), HasSubstr("c sent step 2 where 1 was due"));
  EXPECT_TRUE(service_.on_step("c", step(1)).ok()) << "one that was refused does not count";
  EXPECT_THAT(service_.on_step("c", step(1)).message(), HasSubstr("step 1 where 2 was due"));
  EXPECT_THAT(service_.on_step("c", step(UINT64_MAX)).message(), HasSubstr("where 2 was due"));
  StepResult result;
  result.epoch = 5;
  result.step_id = uint64_t{1} << 63;
  EXPECT_THAT(service_.on_result("t", result).message(),
              HasSubstr("t sent the result of step 9223372036854775808 where 1 was due"));
  result.step_id = 1;
  EXPECT_TRUE(service_.on_result("t", result).ok());
  result.step_id = 2;
  EXPECT_THAT(service_.on_result("t", result).message(), HasSubstr("step 1 is the last"))
      << "no such step is under way";
  EXPECT_TRUE(service_.on_large_frame(caller_of(5, "c", "key"), 2).ok());
  EXPECT_FALSE(service_.on_large_frame(caller_of(5, "c", "key"), 3).ok());
}

TEST_F(RunningService, LosesAPeerByAStreamOfItsEpochOnly) {
  service_.on_stream_closed(caller_of(4, "old", "key"), unavailable("broke"));
  service_.on_stream_closed(caller_of(5, "c", "key"), ok_status());
  EXPECT_TRUE(lost_.empty());
  service_.on_stream_closed(caller_of(5, "c", "key"), unavailable("broke"));
  EXPECT_EQ(lost_, std::vector<std::string>{"c"});
}

}  // namespace
}  // namespace strata::worker
