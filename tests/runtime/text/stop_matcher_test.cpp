// Goal: a text ends before its first stop string however it was cut into pieces, and nothing of a
// stop string leaks out.
#include "runtime/text/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace strata {
namespace {

struct Outcome {
  std::string text;
  int32_t stop = -1;
  bool operator==(const Outcome&) const = default;
};

Outcome feed(std::string_view text, const std::vector<std::string>& stops,
             const std::vector<size_t>& cuts) {
  StopMatcher matcher = StopMatcher::create(stops).value();
  Outcome outcome;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    outcome.text += matcher.push(text.substr(begin, cut - begin));
    begin = cut;
  }
  outcome.text += matcher.push(text.substr(begin));
  outcome.text += matcher.flush();
  outcome.stop = matcher.stop_index();
  return outcome;
}

// The first end of any stop string, the longest of those: by looking everywhere.
Outcome expected(std::string_view text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int32_t found = -1;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (!text.substr(0, end).ends_with(stops[i])) continue;
      if (found < 0 || stops[i].size() > stops[found].size()) found = static_cast<int32_t>(i);
    }
    if (found >= 0) return {std::string(text.substr(0, end - stops[found].size())), found};
  }
  return {std::string(text), -1};
}

TEST(StopMatcher, EndsBeforeTheFirstStopString) {
  EXPECT_EQ(feed("A B C D E F G H I", {"G H"}, {1, 13, 14}), (Outcome{"A B C D E F ", 0}));
  EXPECT_EQ(feed("xabcx", {"abcd", "abc", "ab"}, {2}), (Outcome{"x", 2})) << "complete first";
  EXPECT_EQ(feed("xabcx", {"c", "abc"}, {}), (Outcome{"x", 1})) << "the longest at one end";
  EXPECT_EQ(feed("stop", {"stop"}, {}), (Outcome{"", 0}));
  EXPECT_EQ(feed("sto", {"stop"}, {}), (Outcome{"sto", -1})) << "the end gives it back";
  EXPECT_EQ(feed("aaab", {"aab"}, {1, 2, 3}), (Outcome{"a", 0}));
  EXPECT_EQ(feed("\n\nAlice", {"\n\nAlice:", "\nB"}, {1, 2}), (Outcome{"\n\nAlice", -1}));
}

TEST(StopMatcher, GivesOutWhatCannotBeginAStopString) {
  StopMatcher matcher = StopMatcher::create(std::vector<std::string>{"END"}).value();
  EXPECT_EQ(matcher.push("aE"), "a");
  EXPECT_EQ(matcher.held_bytes(), 1U);
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("E"), "EN");
  EXPECT_EQ(matcher.push("NDx"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopMatcher, BadStopStringsAreRefused) {
  EXPECT_THAT(StopMatcher::create(std::vector<std::string>{"a", ""}).status().message(),
              ::testing::HasSubstr("stop string 1 is empty"));
  EXPECT_FALSE(
      StopMatcher::create(std::vector<std::string>{std::string(StopMatcher::kBytesMax + 1, 'x')})
          .ok());
}

TEST(StopMatcher, AnyCutGivesTheSameText) {
  std::mt19937 random(20260101);
  const auto below = [&random](size_t limit) { return random() % limit; };
  const auto word = [&](size_t length) {
    std::string text;
    for (size_t i = 0; i < length; ++i) text += static_cast<char>('a' + below(3));
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = below(5); i > 0; --i) stops.push_back(word(1 + below(5)));
    const std::string text = word(below(30));
    std::vector<size_t> cuts;
    for (size_t i = below(6); i > 0; --i) cuts.push_back(below(text.size() + 1));
    std::sort(cuts.begin(), cuts.end());
    const Outcome outcome = feed(text, stops, cuts);
    const Outcome reference = expected(text, stops);
    ASSERT_EQ(outcome.text, reference.text) << text;
    ASSERT_EQ(outcome.stop >= 0, reference.stop >= 0) << text;
  }
}

}  // namespace
}  // namespace strata
