// What comes in before, between and after stages is refused by epoch, in words.
#include "worker/step_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(StepService, ABrokenStreamIsNoLossWhenNothingRuns) {
  int told = 0;
  StepService service([&](uint64_t, const std::string&, const Status&) { ++told; });
  service.on_stream_closed("a", remote::StreamMethod::steps, unavailable("broke"));
  EXPECT_EQ(told, 0);
}

}  // namespace
}  // namespace strata::worker
