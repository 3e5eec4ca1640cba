// Goal: every field out of range is refused with its name, value and range.
#include "runtime/sampling/sampling_params.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kVocab = 1000;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(SamplingParams, DefaultsAndEdgesAreValid) {
  EXPECT_TRUE(validate({}, kVocab).ok());
  SamplingParams params;
  params.temperature = 0.0F;
  params.top_p = 0.0F;
  params.min_p = 1.0F;
  params.penalty_last_n = -1;
  params.seed = ~0ULL;
  params.top_logprobs = kVocab;
  params.logit_bias = {{0, -kInfinity}, {kVocab - 1, 100.0F}, {0, -100.0F}};
  EXPECT_TRUE(validate(params, kVocab).ok());
}

struct BadCase {
  std::string text;
  std::function<void(SamplingParams&)> change;
};

TEST(SamplingParams, OutOfRangeNamesFieldAndRange) {
  const std::vector<BadCase> cases = {
      {"temperature is nan, outside 0 to 100", [](auto& p) { p.temperature = kNan; }},
      {"temperature is -1, outside 0 to 100", [](auto& p) { p.temperature = -1.0F; }},
      {"temperature is inf", [](auto& p) { p.temperature = kInfinity; }},
      {"top_k is -5, outside 0 to", [](auto& p) { p.top_k = -5; }},
      {"top_p is 2, outside 0 to 1", [](auto& p) { p.top_p = 2.0F; }},
      {"min_p is -0.5, outside 0 to 1", [](auto& p) { p.min_p = -0.5F; }},
      {"repetition_penalty is 0, outside", [](auto& p) { p.repetition_penalty = 0.0F; }},
      {"frequency_penalty is nan", [](auto& p) { p.frequency_penalty = kNan; }},
      {"presence_penalty is 101", [](auto& p) { p.presence_penalty = 101.0F; }},
      {"penalty_last_n is -2", [](auto& p) { p.penalty_last_n = -2; }},
      {"top_logprobs is 1000000000", [](auto& p) { p.top_logprobs = 1000000000; }},
      {"top_logprobs is -1", [](auto& p) { p.top_logprobs = -1; }},
      {"logit_bias names token -1",
       [](auto& p) {
         p.logit_bias = {{-1, 0.0F}};
       }},
      {"logit_bias names token 1000, outside 0 to 999",
       [](auto& p) {
         p.logit_bias = {{kVocab, 0.0F}};
       }},
      {"logit_bias of token 3 is nan",
       [](auto& p) {
         p.logit_bias = {{3, kNan}};
       }},
      {"logit_bias of token 3 is inf",
       [](auto& p) {
         p.logit_bias = {{3, kInfinity}};
       }},
  };
  for (const BadCase& bad : cases) {
    SamplingParams params;
    bad.change(params);
    const Status status = validate(params, kVocab);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << bad.text;
    EXPECT_THAT(status.message(), HasSubstr(bad.text));
  }
}

}  // namespace
}  // namespace strata
