// Goal: the regular expressions that people write mean what they mean elsewhere; the rest is
// refused with its place.
#include "runtime/grammar/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

using test::regex;
using test::regex_error;
using test::wrong_verdict;
using ::testing::HasSubstr;

TEST(Regex, WholeTexts) {
  EXPECT_EQ(wrong_verdict(regex("a|bc*"), {"a", "b", "bccc"}, {"", "ab", "c", "ac"}), "");
  EXPECT_EQ(wrong_verdict(regex("(?:ab){2,3}"), {"abab", "ababab"}, {"ab", "abababab"}), "");
  EXPECT_EQ(wrong_verdict(regex("(?<year>[0-9]{4})-?"), {"2024", "2024-"}, {"202", "-"}), "");
  EXPECT_EQ(wrong_verdict(regex("x{2}y{,3}"), {"xxy{,3}"}, {"xx", "xxyyy"}), "");
  EXPECT_EQ(wrong_verdict(regex("a+?b??"), {"a", "aab"}, {"", "b"}), "");
  EXPECT_EQ(wrong_verdict(regex("^a$"), {"a"}, {"", "aa"}), "");
  EXPECT_EQ(wrong_verdict(regex(""), {""}, {"a"}), "");
  EXPECT_EQ(wrong_verdict(regex("(|a)(b|)"), {"", "a", "b", "ab"}, {"ba"}), "");
}

TEST(Regex, Classes) {
  EXPECT_EQ(wrong_verdict(regex("[^a-c\\d]"), {"d", "é", "\n", "-"}, {"a", "5", ""}), "");
  EXPECT_EQ(wrong_verdict(regex("[\\]\\-a]+"), {"]-a"}, {"b", "\\"}), "");
  EXPECT_EQ(wrong_verdict(regex("[a-]"), {"a", "-"}, {"b"}), "");
  EXPECT_EQ(wrong_verdict(regex("."), {"a", "é", "🙂", "\xC2\x85"},
                          {"\n", "\r", "\xE2\x80\xA8", "", "\xC3"}),
            "");
  EXPECT_EQ(wrong_verdict(regex("\\p{Lu}\\p{L}*"), {"É", "Zürich"}, {"é", "1"}), "");
  EXPECT_EQ(
      wrong_verdict(regex("\\x41\\u00e9\\u{1F642}\\ud83d\\ude42\\t"), {"Aé🙂🙂\t"}, {"A"}),
      "");
  EXPECT_EQ(wrong_verdict(regex("\\s\\S\\w\\W"), {" xa-", "\xC2\xA0_1."}, {"xx__"}), "");
}

TEST(Regex, SearchAndAnchors) {
  const auto found = [](std::string_view pattern, std::string_view text) {
    Budget budget;
    return regex_dfa(pattern, true, budget).value().match(text) != 0;
  };
  EXPECT_TRUE(found("b", "abc"));
  EXPECT_FALSE(found("^b", "abc"));
  EXPECT_FALSE(found("b$", "abc"));
  EXPECT_TRUE(found("^a|c$", "xc"));
  EXPECT_TRUE(found("^a|c$", "ax"));
  EXPECT_FALSE(found("^a|c$", "xax"));
  EXPECT_TRUE(found("(^|x)b", "axb"));
  EXPECT_FALSE(found("(^|x)b", "ab"));
  EXPECT_TRUE(found("", "anything\n"));
  EXPECT_TRUE(found("$^", ""));
  EXPECT_FALSE(found("$^", "a"));
  EXPECT_FALSE(found("a$b", "ab"));
}

TEST(Regex, RefusalsSayWhatAndWhere) {
  EXPECT_EQ(regex_error("ab(c"), "regular expression, character 5: a group '(' without its ')'");
  EXPECT_EQ(regex_error("a)"), "regular expression, character 2: a ')' without its '('");
  for (const auto& [pattern, what] : {std::pair{"(?=a)", "look-ahead"},
                                      {"(?<!a)", "look-behind"},
                                      {"(a)\\1", "back-references"},
                                      {"\\bword", "\\b is not supported"},
                                      {"(?i)a", "flags"},
                                      {"a++", "possessive"},
                                      {"*a", "a repetition of nothing"},
                                      {"a**", "repetition of a repetition"},
                                      {"[z-a]", "a range"},
                                      {"[a", "without its ']'"},
                                      {"[]", "an empty class"},
                                      {"[[:alpha:]]", "POSIX"},
                                      {"\\q", "escape \\q"},
                                      {"\\u12", "hexadecimal"},
                                      {"a{3,2}", "3 to 2"},
                                      {"a{999999}", "more than 100000"},
                                      {"\\p{Xx}", "general category"},
                                      {"\\", "at the end"},
                                      {"(?>a)", "atomic"}}) {
    EXPECT_THAT(regex_error(pattern), HasSubstr(what)) << pattern;
  }
  EXPECT_THAT(regex_error(std::string(5000, '(')), HasSubstr("more than 1000 groups"));
  EXPECT_THAT(regex_error("\xff"), HasSubstr("not UTF-8"));
  EXPECT_THAT(regex_error("a$b"), HasSubstr("matches no text"));
}

TEST(Regex, LongRepetitionsAreBounded) {
  EXPECT_EQ(regex_error("[ab]{1,3000}"), "");
  EXPECT_NE(regex_error("((a{100}){100}){100}"), "");
  EXPECT_NE(regex_error("[ab]*a[ab]{30}"), "");
}

}  // namespace
}  // namespace strata::grammar
