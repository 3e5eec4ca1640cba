// Goal: each filter keeps exactly the set that its definition names, ids ascending, ties by lower
// id. Method: hand-made rows, and random rows against a plain sort over everything.
#include "runtime/sampling/filters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace strata {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kBanned = -std::numeric_limits<double>::infinity();

std::vector<Candidate> weighted(std::vector<double> scores, double temperature = 1.0) {
  std::vector<Candidate> candidates;
  list_best(scores, static_cast<int32_t>(scores.size()), candidates);
  set_weights(candidates, temperature);
  return candidates;
}

std::vector<int32_t> ids(const std::vector<Candidate>& candidates) {
  std::vector<int32_t> result;
  for (const Candidate& candidate : candidates) result.push_back(candidate.id);
  return result;
}

TEST(Filters, BiasAddsAndBans) {
  std::vector<double> scores = {1, 2, 3};
  const std::vector<std::pair<int32_t, float>> bias = {{0, 5.0F}, {0, 1.0F}, {2, -100.0F}};
  apply_logit_bias(scores, bias);
  EXPECT_THAT(scores, ElementsAre(7, 2, kBanned));
}

TEST(Filters, PenaltiesLookBackOverTheWindow) {
  SamplingParams params;
  params.repetition_penalty = 2.0F;
  params.presence_penalty = 0.5F;
  params.frequency_penalty = 0.25F;
  params.penalty_last_n = 3;
  std::vector<double> scores = {4, -4, 4, 4};
  const std::vector<int32_t> history = {3, 0, 1, 0};
  std::vector<int32_t> counts;
  ASSERT_TRUE(apply_penalties(scores, history, params, counts).ok());
  EXPECT_THAT(scores, ElementsAre(4 / 2.0 - 0.5 - 0.5, -4 * 2.0 - 0.5 - 0.25, 4, 4));

  params.penalty_last_n = -1;
  scores = {4, -4, 4, 4};
  ASSERT_TRUE(apply_penalties(scores, history, params, counts).ok());
  EXPECT_EQ(scores[3], 4 / 2.0 - 0.5 - 0.25);
  EXPECT_THAT(counts, ElementsAre(0, 0, 0, 0)) << "as it was, for the next token";

  params.penalty_last_n = 0;
  scores = {4, -4, 4, 4};
  ASSERT_TRUE(apply_penalties(scores, history, params, counts).ok());
  EXPECT_THAT(scores, ElementsAre(4, -4, 4, 4));
}

TEST(Filters, PenaltiesRefuseForeignIds) {
  SamplingParams params;
  params.presence_penalty = 1.0F;
  std::vector<double> scores = {1, 2};
  std::vector<int32_t> counts;
  for (const int32_t id : {-1, 2}) {
    const Status status = apply_penalties(scores, std::vector<int32_t>{1, id}, params, counts);
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("outside 0 to 1"));
    EXPECT_THAT(counts, Each(0));
  }
}

TEST(Filters, BestIdPrefersTheLowerOfEquals) {
  EXPECT_EQ(best_id(std::vector<double>{1, 3, 3, 2}).value(), 1);
  const Result<int32_t> none = best_id(std::vector<double>{kBanned, kBanned});
  EXPECT_EQ(none.status().code(), StatusCode::failed_precondition);
  EXPECT_THAT(none.status().message(), HasSubstr("bans every one"));
}

TEST(Filters, BannedTokensAreNoCandidates) {
  std::vector<Candidate> candidates;
  const std::vector<double> scores = {1, kBanned, 2};
  list_best(scores, 3, candidates);
  EXPECT_THAT(ids(candidates), ElementsAre(0, 2));
  std::vector<double> weights;
  EXPECT_NEAR(compute_weights(scores, 1.0, weights), 1.3678794411714423, 1e-15);
  EXPECT_EQ(weights[1], 0.0);
  list_heavy(scores, weights, 0.0, candidates);
  EXPECT_THAT(ids(candidates), ElementsAre(0, 2));
  list_heavy(scores, weights, 0.5, candidates);
  EXPECT_THAT(ids(candidates), ElementsAre(2));
}

TEST(Filters, TopKKeepsTheLowerIdsOfEquals) {
  const std::vector<double> scores = {1, 5, 5, 5, 0};
  std::vector<Candidate> candidates;
  list_best(scores, 2, candidates);
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2));
  list_best(scores, 4, candidates);
  EXPECT_THAT(ids(candidates), ElementsAre(0, 1, 2, 3));
  list_best(scores, 10, candidates);
  EXPECT_EQ(candidates.size(), 5U);
}

TEST(Filters, TopPKeepsTheFewestThatReachTheMass) {
  // Weights 1, 1/2, 1/4 of the sum 1.75.
  const double ln2 = 0.6931471805599453;
  std::vector<Candidate> candidates = weighted({-ln2, 0, -2 * ln2});
  std::vector<Candidate> half = candidates;
  keep_top_p(half, 0.5 * 1.75);
  EXPECT_THAT(ids(half), ElementsAre(1));
  std::vector<Candidate> most = candidates;
  keep_top_p(most, 0.7 * 1.75);
  EXPECT_THAT(ids(most), ElementsAre(0, 1));
  std::vector<Candidate> none = candidates;
  keep_top_p(none, 0.0);
  EXPECT_THAT(ids(none), ElementsAre(1)) << "the best one always stays";
}

TEST(Filters, MinPComparesWithTheBest) {
  const double ln2 = 0.6931471805599453;
  std::vector<Candidate> candidates = weighted({-ln2, 0, -2 * ln2 - 0.001});
  keep_min_p(candidates, 0.25);
  EXPECT_THAT(ids(candidates), ElementsAre(0, 1));
  keep_min_p(candidates, 1.0);
  EXPECT_THAT(ids(candidates), ElementsAre(1));
}

TEST(Filters, TemperatureFlattens) {
  EXPECT_NEAR(weighted({0, 1}, 0.5)[0].weight, 0.1353352832366127, 1e-15);
  EXPECT_NEAR(weighted({0, 1}, 2.0)[0].weight, 0.6065306597126334, 1e-15);
  EXPECT_EQ(weighted({0, 1}, 1e-30)[0].weight, 0.0);
}

TEST(Filters, DrawWalksIdsInOrder) {
  std::vector<Candidate> candidates = {{3, 0, 1.0}, {7, 0, 2.0}, {9, 0, 1.0}};
  EXPECT_EQ(draw(candidates, 0.0), 3);
  EXPECT_EQ(draw(candidates, 0.2499), 3);
  EXPECT_EQ(draw(candidates, 0.25), 7);
  EXPECT_EQ(draw(candidates, 0.7499), 7);
  EXPECT_EQ(draw(candidates, 0.99999994), 9);
}

// The straightforward definition: everything sorted.
std::vector<int32_t> top_p_by_sorting(std::vector<Candidate> candidates, double mass) {
  double total = 0.0;
  for (const Candidate& c : candidates) total += c.weight;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.score > b.score; });
  std::vector<int32_t> kept;
  double sum = 0.0;
  for (const Candidate& c : candidates) {
    if (!kept.empty() && sum >= mass * total) break;
    sum += c.weight;
    kept.push_back(c.id);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(Filters, TopPEqualsSortingEverything) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> scores(1 + random() % 3000);
    // Few distinct values, so that there are many ties.
    for (double& score : scores) score = static_cast<double>(random() % 9) * 0.75;
    const std::vector<Candidate> candidates = weighted(scores, 0.5 + 0.5 * (round % 4));
    for (const double mass : {0.01, 0.5, 0.9, 0.999, 1.0}) {
      std::vector<Candidate> kept = candidates;
      keep_top_p(kept, mass * sum_of_weights(candidates));
      ASSERT_EQ(ids(kept), top_p_by_sorting(candidates, mass)) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace strata
