// Which rows a step takes: spread over the stages, fair, bounded.
#include "coordinator/engine/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata::coordinator {
namespace {

using ::testing::ElementsAre;

std::vector<std::pair<uint32_t, uint32_t>> pairs(const std::vector<BatchRow>& rows) {
  std::vector<std::pair<uint32_t, uint32_t>> result;
  for (const BatchRow& row : rows) result.emplace_back(row.index, row.count);
  return result;
}

BatchCandidate decoding(uint32_t index, bool ready, uint64_t served) {
  return {.index = index, .decode_ready = ready, .decoding = true, .last_served = served};
}

TEST(Batcher, SpreadsDecodingRowsOverTheStages) {
  const std::vector<BatchCandidate> candidates = {decoding(0, true, 3), decoding(1, true, 1),
                                                  decoding(2, true, 2), decoding(3, true, 4)};
  EXPECT_THAT(pairs(choose_rows(candidates, {.stage_count = 2})),
              ElementsAre(std::pair(1, 1), std::pair(2, 1)));
  EXPECT_THAT(pairs(choose_rows(candidates, {.stage_count = 4})), ElementsAre(std::pair(1, 1)));
  EXPECT_EQ(choose_rows(candidates, {.stage_count = 1}).size(), 4U);
}

TEST(Batcher, CountsThoseThatAreUnderWay) {
  const std::vector<BatchCandidate> candidates = {decoding(0, false, 3), decoding(1, true, 1),
                                                  decoding(2, true, 2), decoding(3, false, 4)};
  EXPECT_EQ(choose_rows(candidates, {.stage_count = 2}).size(), 2U);
  EXPECT_EQ(choose_rows(candidates, {.stage_count = 4}).size(), 1U);
}

TEST(Batcher, PromptsShareAStepWithDecodingRows) {
  const std::vector<BatchCandidate> candidates = {
      decoding(0, true, 9),
      {.index = 1, .prompt_left = 100, .last_served = 2},
      {.index = 2, .prompt_left = 10, .last_served = 1}};
  EXPECT_THAT(pairs(choose_rows(candidates, {.stage_count = 1, .step_tokens = 32})),
              ElementsAre(std::pair(0, 1), std::pair(2, 10), std::pair(1, 21)));
  EXPECT_THAT(
      pairs(choose_rows(candidates, {.stage_count = 1, .step_tokens = 64, .prefill_chunk = 7})),
      ElementsAre(std::pair(0, 1), std::pair(2, 7), std::pair(1, 7)));
}

TEST(Batcher, PromptsGetATokenHoweverManyDecode) {
  std::vector<BatchCandidate> candidates = {{.index = 9, .prompt_left = 5}};
  for (uint32_t i = 0; i < 8; ++i) candidates.push_back(decoding(i, true, i + 1));
  const auto rows = choose_rows(candidates, {.stage_count = 1, .step_tokens = 4});
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows.back().index, 9U);
}

TEST(Batcher, CutsAPromptForTheStages) {
  const std::vector<BatchCandidate> candidates = {{.index = 0, .prompt_left = 400}};
  EXPECT_EQ(choose_rows(candidates, {.stage_count = 1})[0].count, 400U);
  EXPECT_EQ(choose_rows(candidates, {.stage_count = 4})[0].count, 112U);
  EXPECT_EQ(choose_rows(candidates, {.stage_count = 16})[0].count, kShortestSpreadChunk);
}

TEST(Batcher, NothingDueGivesNoRows) {
  EXPECT_TRUE(choose_rows({}, {}).empty());
  const std::vector<BatchCandidate> candidates = {decoding(0, false, 1)};
  EXPECT_TRUE(choose_rows(candidates, {}).empty());
}

}  // namespace
}  // namespace strata::coordinator
