// Goal: GBNF as llama.cpp's documentation describes it; every malformed grammar is an error with
// line and column.
#include "runtime/grammar/gbnf.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/grammar/matcher.h"
#include "runtime/sampling/grammar_spec.h"
#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

using test::gbnf;
using test::gbnf_error;
using test::wrong_verdict;
using ::testing::HasSubstr;

TEST(Gbnf, RulesAndRepetition) {
  EXPECT_EQ(wrong_verdict(
                gbnf("root ::= item{2} item{0,1} \"!\"? # comment\nitem ::= [a-c] | \"\\x41\"\n"),
                {"ab", "aAb!", "cc!"}, {"a", "abca", "!", "abc!!"}),
            "");
  EXPECT_EQ(wrong_verdict(gbnf("root ::= \"a\" root \"b\" | \"\""), {"", "ab", "aaabbb"},
                          {"a", "aab", "ba"}),
            "");
  EXPECT_EQ(wrong_verdict(gbnf("root ::= [^\"\\\\\\n]+ .\n"), {"ab", "é🙂"}, {"a", "\"b", ""}),
            "");
  EXPECT_EQ(wrong_verdict(gbnf("root ::= a_b* | (\"x\"\n  | \"y\" )\n\na_b ::= \"\\u00e9\"\n"),
                          {"", "é", "éé", "x", "y"}, {"xy", "e"}),
            "");
  EXPECT_EQ(wrong_verdict(gbnf("root ::= [a-]+ | [\\]\\[^]"), {"a-a", "]", "[", "^"}, {"b", ""}),
            "");
}

TEST(Gbnf, CallsBesideTheLastCodePointAndBesideEachOther) {
  EXPECT_EQ(wrong_verdict(gbnf("root ::= \"a\" (. | root)"), {"ab", "aab", "aaab", "a\U0010FFFF"},
                          {"a", "ba", "abb"}),
            "");
  EXPECT_EQ(wrong_verdict(gbnf("root ::= x | y | \"(\" root \")\"\nx ::= \"x\"\ny ::= \"y\"\n"),
                          {"x", "(y)", "((x))"}, {"()", "xy", "(x"}),
            "");
}

TEST(Gbnf, LlamaCppJsonGrammar) {
  const auto pda = gbnf(R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws

object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws

array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws

string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws

number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws

ws ::= | " " | "\n" [ \t]{0,20}
)");
  EXPECT_EQ(wrong_verdict(pda, {R"({"a": [1, 2.5, "x\n", {}], "b": null})", "{}"},
                          {"[]", R"({"a"})", R"({"a":1,})"}),
            "");
}

TEST(Gbnf, HiddenEmptyRulesAreNoLeftRecursion) {
  EXPECT_EQ(
      wrong_verdict(gbnf("root ::= ws \"a\" ws root?\nws ::= \" \"*"), {"a", " a a"}, {"", " "}),
      "");
}

TEST(Gbnf, MalformedGrammarsAreErrors) {
  for (const auto& [text, what] :
       {std::pair{"rout::=", "no rule 'root'"},
        {"", "no rule 'root'"},
        {"root ::= root", "matches no text"},
        {"root ::= [a", "line 1 column"},
        {"root ::= (\"a\"", "'(' without its ')'"},
        {"root ::= \"a", "closing"},
        {"root ::= a b\na ::= \"x\"", "line 1 column 13: there is no rule 'b'"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2 column 1: rule 'root' is given a second time"},
        {"root ::= a\na ::= b | \"y\"\nb ::= \"\" a \"x\"", "left-recursive"},
        {"root ::= ws root \"x\" | \"y\"\nws ::= \" \"*", "left-recursive"},
        {"root ::= \"a\" root", "matches no text"},
        {"root \"a\"", "'::=' is expected"},
        {"root ::= \"a\" {3,2}", "3 to 2"},
        {"root ::= \"a\"{99999999}", "more than"},
        {"root ::= <[12]>", "tokens"},
        {"root ::= \"\\q\"", "escape"},
        {"root ::= * \"a\"", "not expected"},
        {"root ::= \"\xff\"", "not UTF-8"},
        {"root ::= [z-a]", "backwards"},
        {"root ::= \"\\", "not known"},
        {"::= \"a\"", "name is expected"}}) {
    EXPECT_THAT(gbnf_error(text), HasSubstr(what)) << text;
  }
  EXPECT_THAT(gbnf_error("root ::= " + std::string(5000, '(')), HasSubstr("more than 1000 groups"));
}

TEST(Gbnf, TooLargeGrammarsAreErrors) {
  const GrammarSpec large{.kind = GrammarSpec::Kind::gbnf, .text = std::string(1 << 20, ' ')};
  EXPECT_THAT(compile_grammar(large, Strictness::generation).status().message(),
              HasSubstr("the grammar has 1048576 bytes, at most 524288"));
  std::string many = "root ::= r0\n";
  for (int i = 0; i < 4000; ++i) many += fmt::format("r{} ::= [a-z]{{3000}} r{}\n", i, i + 1);
  many += "r4000 ::= \"x\"\n";
  EXPECT_NE(gbnf_error(many), "");
}

TEST(Gbnf, RulesThatMatchNothingAreNotOffered) {
  EXPECT_EQ(
      wrong_verdict(gbnf("root ::= \"a\" (bad | \"b\")\nbad ::= \"c\" bad"), {"ab"}, {"ac", "a"}),
      "");
  Matcher matcher(gbnf("root ::= \"a\" (bad | \"b\")\nbad ::= \"c\" bad"));
  ASSERT_TRUE(matcher.accept("a"));
  EXPECT_EQ(matcher.expected(), "'b'");
}

// The number of ways to read the text grows as 2^n: an error, neither a hang nor an abort.
TEST(Gbnf, AmbiguityIsBounded) {
  Matcher matcher(gbnf("root ::= x | y | \"d\"\nx ::= \"a\" root \"b\"\ny ::= \"a\" root \"c\""));
  std::string text(100, 'a');
  const size_t taken = matcher.accept_some(text);
  EXPECT_LT(taken, 100U);
  EXPECT_THAT(matcher.failure().message(), HasSubstr("too ambiguous"));
}

}  // namespace
}  // namespace strata::grammar
