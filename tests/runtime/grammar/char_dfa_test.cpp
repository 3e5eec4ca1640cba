// Goal: the set operations on automata. Method: small languages by hand, and random texts of two
// letters against what the parts say.
#include "runtime/grammar/char_dfa.h"

#include <gtest/gtest.h>

#include <array>

#include "runtime/grammar/regex.h"

namespace strata::grammar {
namespace {

CharDfa dfa(std::string_view pattern) {
  Budget budget;
  return regex_dfa(pattern, false, budget).value();
}

// All texts of up to 7 letters a and b.
std::vector<std::string> short_texts() {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; texts[i].size() < 7; ++i) {
    texts.push_back(texts[i] + "a");
    texts.push_back(texts[i] + "b");
  }
  return texts;
}

TEST(CharDfa, OperationsAreThoseOnSets) {
  Budget budget;
  const std::array patterns = {"a*b", "(ab|ba)*", "a{2,4}.*", "b?", "(a|b)*abb"};
  for (const char* left : patterns) {
    for (const char* right : patterns) {
      const CharDfa a = dfa(left);
      const CharDfa b = dfa(right);
      const CharDfa both = intersection(a, b, budget).value();
      const CharDfa either = unite(a, b, budget).value();
      const CharDfa only = difference(a, b, budget).value();
      for (const std::string& text : short_texts()) {
        const bool in_a = a.match(text) != 0;
        const bool in_b = b.match(text) != 0;
        EXPECT_EQ(both.match(text) != 0, in_a && in_b) << left << " and " << right << ": " << text;
        EXPECT_EQ(either.match(text) != 0, in_a || in_b) << left << " or " << right << ": " << text;
        EXPECT_EQ(only.match(text) != 0, in_a && !in_b) << left << " not " << right << ": " << text;
      }
    }
  }
}

TEST(CharDfa, MinimisedAutomataOfOneLanguageAreEqual) {
  EXPECT_EQ(dfa("aa*|b"), dfa("b|a+"));
  EXPECT_EQ(dfa("(a|b)*"), dfa("(a*b*)*"));
  EXPECT_EQ(dfa("a{3}|a{4}"), dfa("aaaa?"));
}

TEST(CharDfa, NothingIsLeftOfAContradiction) {
  Budget budget;
  EXPECT_TRUE(intersection(dfa("a+"), dfa("b+"), budget)->empty());
  EXPECT_TRUE(difference(dfa("a"), any_text(), budget)->empty());
  EXPECT_TRUE(text_of_length(3, 2).empty());
  EXPECT_EQ(CharDfa().match(""), 0U);
}

TEST(CharDfa, TextsKeepTheirNumbers) {
  const std::vector<std::string> texts = {"name", "na", "", "nämé", "na"};
  const CharDfa dfa = any_of_texts(texts);
  EXPECT_EQ(dfa.match("name"), 1U);
  EXPECT_EQ(dfa.match("na"), 2U);
  EXPECT_EQ(dfa.match(""), 3U);
  EXPECT_EQ(dfa.match("nämé"), 4U);
  EXPECT_EQ(dfa.match("nam"), 0U);
}

TEST(CharDfa, LengthsCountCodePoints) {
  const CharDfa dfa = text_of_length(1, 2);
  EXPECT_EQ(dfa.match("é🙂"), 1U);
  EXPECT_EQ(dfa.match(""), 0U);
  EXPECT_EQ(dfa.match("abc"), 0U);
  EXPECT_EQ(dfa.match("\xC3"), 0U);
  EXPECT_EQ(text_of_length(2, kUnbounded).match("abcdef"), 1U);
}

TEST(CharDfa, ABudgetThatIsSpentIsAnError) {
  Budget budget;
  EXPECT_TRUE(budget.spend(1000).ok());
  EXPECT_FALSE(budget.spend(size_t{1} << 40).ok());
  EXPECT_FALSE(budget.spend(1).ok());
}

}  // namespace
}  // namespace strata::grammar
