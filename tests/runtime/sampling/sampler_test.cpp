// Goal: the whole chain is right, repeatable from its arguments alone, and refuses broken logits.
#include "runtime/sampling/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

namespace strata {
namespace {

using ::testing::HasSubstr;

std::vector<float> random_logits(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = static_cast<float>(random() % 20000) * 0.001F - 10.0F;
  return logits;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

int32_t sampled(std::span<const float> logits, const SamplingParams& params, int64_t position,
                std::span<const int32_t> history = {}) {
  Sampler sampler;
  return sampler.sample(logits, params, history, position).value().id;
}

TEST(Sampler, GreedyTakesTheLowerIdOfEquals) {
  EXPECT_EQ(sampled(std::vector<float>{1, 4, 4, -1}, greedy(), 0), 1);
  EXPECT_EQ(sampled(std::vector<float>{-0.0F, 0.0F}, greedy(), 0), 0);
}

// Without bias and penalties the best logit is taken as it is; with a bias of 0, from the scores.
TEST(Sampler, GreedyIsTheSameWithAndWithoutScores) {
  SamplingParams with_scores = greedy();
  with_scores.logit_bias = {{0, 0.0F}};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::vector<float> logits = random_logits(1 + seed * 7, seed);
    for (float& logit : logits) logit = std::round(logit);  // many equals, -0 among them
    EXPECT_EQ(sampled(logits, greedy(), 0), sampled(logits, with_scores, 0)) << seed;
  }
}

TEST(Sampler, TopKOneIsGreedyAtAnyTemperature) {
  const std::vector<float> logits = random_logits(500, 1);
  SamplingParams params;
  params.temperature = 5.0F;
  params.top_k = 1;
  for (int64_t position = 0; position < 20; ++position) {
    EXPECT_EQ(sampled(logits, params, position), sampled(logits, greedy(), position));
  }
}

TEST(Sampler, SameSeedSameTokensOtherSeedOtherTokens) {
  const std::vector<float> logits = random_logits(2000, 2);
  SamplingParams params;
  params.temperature = 1.5F;
  std::map<uint64_t, std::vector<int32_t>> runs;
  for (const uint64_t seed : {1ULL, 2ULL, 1ULL << 32, 1ULL << 63, ~0ULL}) {
    params.seed = seed;
    std::vector<int32_t> first;
    std::vector<int32_t> second;
    for (int64_t p = 0; p < 32; ++p) first.push_back(sampled(logits, params, p));
    // Backwards and by one Sampler: nothing is carried from call to call.
    Sampler sampler;
    for (int64_t p = 31; p >= 0; --p) {
      second.insert(second.begin(), sampler.sample(logits, params, {}, p).value().id);
    }
    EXPECT_EQ(first, second);
    for (const auto& [other, tokens] : runs) EXPECT_NE(tokens, first) << other << " " << seed;
    runs[seed] = first;
  }
}

TEST(Sampler, ChoicesOfOneRequestDiffer) {
  const std::vector<float> logits = random_logits(2000, 3);
  SamplingParams params;
  std::vector<int32_t> answers[2];
  for (uint32_t choice = 0; choice < 2; ++choice) {
    params.choice = choice;
    for (int64_t p = 0; p < 32; ++p) answers[choice].push_back(sampled(logits, params, p));
  }
  EXPECT_NE(answers[0], answers[1]);
}

TEST(Sampler, FrequenciesFollowTheDistribution) {
  // Probabilities 0.1, 0.2, 0.3, 0.4.
  const std::vector<float> logits = {0.0F, 0.6931472F, 1.0986123F, 1.3862944F};
  SamplingParams params;
  params.temperature = 1.0F;
  params.top_p = 1.0F;
  std::array<int, 4> counts{};
  for (int64_t p = 0; p < 100000; ++p) ++counts[static_cast<size_t>(sampled(logits, params, p))];
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(counts[i], 10000.0 * static_cast<double>(i + 1), 900.0) << i;
  }
}

TEST(Sampler, ABannedTokenNeverAppears) {
  std::vector<float> logits = random_logits(50, 4);
  logits[17] = 80.0F;
  SamplingParams params = greedy();
  EXPECT_EQ(sampled(logits, params, 0), 17);
  params.logit_bias = {{17, -100.0F}};
  EXPECT_NE(sampled(logits, params, 0), 17);
  params.temperature = 2.0F;
  params.top_p = 1.0F;
  for (int64_t p = 0; p < 200; ++p) EXPECT_NE(sampled(logits, params, p), 17);
}

TEST(Sampler, PenaltiesChangeTheGreedyToken) {
  SamplingParams params = greedy();
  params.repetition_penalty = 1.5F;
  const std::vector<int32_t> history = {1, 1};
  EXPECT_EQ(sampled(std::vector<float>{3, 4}, params, 2, history), 0);
}

TEST(Sampler, LogprobsAreOfTheModelsDistributionAndFinite) {
  const std::vector<float> logits = {0.0F, 0.6931472F, 1.0986123F, 1.3862944F, -1e30F};
  SamplingParams params;
  params.top_k = 1;
  params.logit_bias = {{3, -100.0F}};
  params.logprobs = true;
  params.top_logprobs = 5;
  Sampler sampler;
  const SampledToken token = sampler.sample(logits, params, {}, 0).value();
  EXPECT_EQ(token.id, 2);
  EXPECT_NEAR(token.logprob, std::log(0.3), 1e-6);
  ASSERT_EQ(token.top.size(), 5U);
  EXPECT_EQ(token.top[0].id, 3);
  EXPECT_NEAR(token.top[0].logprob, std::log(0.4), 1e-6);
  for (const TokenLogprob& entry : token.top) EXPECT_TRUE(std::isfinite(entry.logprob));
  EXPECT_NEAR(logprob_of(logits, 0), std::log(0.1), 1e-6);
  EXPECT_EQ(top_logprobs(logits, 100).size(), 5U);
}

TEST(Sampler, NothingAskedNothingReported) {
  Sampler sampler;
  const SampledToken token = sampler.sample(std::vector<float>{1, 2}, greedy(), {}, 0).value();
  EXPECT_EQ(token.logprob, 0.0F);
  EXPECT_TRUE(token.top.empty());
}

TEST(Sampler, NonFiniteLogitsAreAnError) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    Sampler sampler;
    const auto result = sampler.sample(std::vector<float>{1, bad, 2}, greedy(), {}, 0);
    EXPECT_EQ(result.status().code(), StatusCode::data_loss);
    EXPECT_THAT(result.status().message(), HasSubstr("non-finite logits"));
    EXPECT_THAT(result.status().message(), HasSubstr("token 1 of 3"));
  }
}

TEST(Sampler, BadPositionsAndAllBannedAreErrors) {
  Sampler sampler;
  const std::vector<float> logits = {1, 2};
  EXPECT_EQ(sampler.sample(logits, greedy(), {}, -1).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(sampler.sample(logits, greedy(), {}, 1LL << 32).status().code(),
            StatusCode::invalid_argument);
  SamplingParams params;
  params.logit_bias = {{0, -100.0F}, {1, -100.0F}};
  EXPECT_EQ(sampler.sample(logits, params, {}, 0).status().code(), StatusCode::failed_precondition);
}

TEST(Sampler, HugeLogitsDoNotOverflow) {
  SamplingParams params;
  params.temperature = 1e-30F;
  params.repetition_penalty = 0.01F;
  const std::vector<int32_t> history = {1};
  EXPECT_EQ(sampled(std::vector<float>{-3e38F, 3e38F, 3e38F}, params, 1, history), 1);
}

TEST(Sampler, TopPIsTheSameWithAndWithoutATopKThatKeepsAll) {
  // Two ways through the chain: over the whole vocabulary, and over a list.
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<float> logits = random_logits(1000, seed);
    SamplingParams params;
    params.temperature = 0.5F + 0.1F * static_cast<float>(seed % 20);
    params.top_p = 0.05F * static_cast<float>(1 + seed % 20);
    params.seed = seed;
    SamplingParams listed = params;
    listed.top_k = 1000;
    for (int64_t p = 0; p < 20; ++p) {
      ASSERT_EQ(sampled(logits, params, p), sampled(logits, listed, p)) << seed << " " << p;
    }
  }
}

// The tokens of one configuration, fixed: a change of the chain's arithmetic shows here.
TEST(Sampler, TokensAreTheSameOnEveryMachine) {
  const std::vector<float> logits = random_logits(5000, 5);
  SamplingParams params;
  params.temperature = 0.8F;
  params.top_k = 400;
  params.top_p = 0.9F;
  params.min_p = 0.001F;
  params.seed = 1234567890123ULL;
  std::vector<int32_t> tokens;
  for (int64_t p = 0; p < 12; ++p) tokens.push_back(sampled(logits, params, p, tokens));
  EXPECT_EQ(tokens, (std::vector<int32_t>{1206, 2431, 258, 3461, 1298, 1389, 4872, 1040, 3585, 878,
                                          4112, 2187}));
}

}  // namespace
}  // namespace strata
