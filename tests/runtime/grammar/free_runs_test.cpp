// Goal: a run never promises what the automaton refuses, and finds those that matter: the inside of
// strings, with and without a limit, and chains of a pattern. Method: exact values where a reader
// can tell them, and every run tried against the matcher.
#include "runtime/grammar/free_runs.h"

#include <gtest/gtest.h>

#include "runtime/grammar/matcher.h"
#include "runtime/text/unicode.h"
#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

constexpr uint32_t kLongest = 100;

FreeRuns::Run run_after(const std::shared_ptr<const Pda>& pda, std::string_view text) {
  Matcher matcher(pda);
  EXPECT_TRUE(matcher.accept(text));
  const auto configurations = matcher.space().configurations(matcher.situation());
  EXPECT_EQ(configurations.size(), 1U) << text;
  return FreeRuns(pda, kLongest)
      .of(configurations[0].state, configurations[0].reg, matcher.space().registers());
}

bool has(const FreeRuns::Run& run, uint32_t code) { return (run.classes & class_of(code)) != 0; }

TEST(FreeRuns, InsideAStringAllButItsSyntaxIsFree) {
  const FreeRuns::Run run = run_after(test::schema(R"({"type":"string"})"), "\"x");
  for (const uint32_t code :
       std::initializer_list<uint32_t>{'a', 'Z', ' ', '/', '~', 0xE9, 0x4E00, 0x2028, 0x1F642}) {
    EXPECT_TRUE(has(run, code)) << code;
  }
  for (const uint32_t code : std::initializer_list<uint32_t>{'"', '\\', '\n', 0x01})
    EXPECT_FALSE(has(run, code)) << code;
  EXPECT_EQ(run.characters, kLongest);
  EXPECT_FALSE(run.is_exact);
}

TEST(FreeRuns, EndWhereTheCounterDoes) {
  const auto pda = test::schema(R"({"type":"string","minLength":2,"maxLength":40})");
  EXPECT_EQ(run_after(pda, "\"").characters, 40U);
  EXPECT_EQ(run_after(pda, "\"abé").characters, 37U);
  EXPECT_TRUE(run_after(pda, "\"abé").is_exact);
}

TEST(FreeRuns, FollowTheChainOfAPattern) {
  const auto pda = test::schema(R"({"type":"string","pattern":"^[a-z0-9-]{1,30}$"})");
  const FreeRuns::Run run = run_after(pda, "\"ab-");
  EXPECT_EQ(run.classes, class_of('a') | class_of('g') | class_of('0') | class_of('-'));
  EXPECT_EQ(run.characters, 27U);
  EXPECT_TRUE(run.is_exact);
  const FreeRuns::Run last = run_after(pda, "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
  EXPECT_EQ(last.characters, 1U);
  EXPECT_TRUE(last.is_exact);
}

TEST(FreeRuns, AreNotExactWhereARuleMayEndWithin) {
  const FreeRuns::Run run = run_after(test::gbnf("root ::= [a-z]{1,5} [0-9]*"), "ab");
  EXPECT_EQ(run.classes, class_of('a') | class_of('g'));
  EXPECT_EQ(run.characters, 3U);
  EXPECT_FALSE(run.is_exact);
}

TEST(FreeRuns, GoRoundACircleOfStates) {
  const FreeRuns::Run run =
      run_after(test::schema(R"({"type":"string","pattern":"^.*[aeiou].{4}$"})"), "\"x");
  EXPECT_TRUE(has(run, 'a'));
  EXPECT_TRUE(has(run, 0x4E00));
  EXPECT_FALSE(has(run, 0x2028)) << "a line end, which '.' is not";
  EXPECT_EQ(run.characters, kLongest);
}

// Random characters of the run's classes all fit, as many as it says.
TEST(FreeRuns, PromiseNothingThatIsRefused) {
  const std::u32string letters =
      U"abcxyzABCXYZ0189 !#$%&'()*+,-./:;<=>?@[]^_`{|}~éßжمあ今한—🙂\u2028\u0301";
  uint32_t seed = 5;
  for (const char* schema :
       {R"({"type":"string","maxLength":9})", R"({"type":"string","pattern":"^.{3,8}$"})",
        R"({"type":"string","pattern":"^(?:[a-f]{2}|\\p{L}+ )*$"})",
        R"({"type":"string","format":"uri"})", R"({"type":"string","format":"email"})",
        R"({"type":"object","additionalProperties":{"type":"integer"},"maxProperties":1})"}) {
    const auto pda = test::schema(schema, Strictness::generation);
    const std::string before =
        std::string_view(schema).find("object") == std::string_view::npos ? "\"" : "{\"";
    Matcher matcher(pda);
    ASSERT_TRUE(matcher.accept(before));
    FreeRuns runs(pda, kLongest);
    for (int step = 0; step < 200; ++step) {
      for (const Configuration& c : matcher.space().configurations(matcher.situation())) {
        const FreeRuns::Run run = runs.of(c.state, c.reg, matcher.space().registers());
        Matcher ahead = matcher;
        for (uint32_t count = 0; count < run.characters && run.classes != 0;) {
          seed = seed * 1664525 + 1013904223;
          const char32_t letter = letters[(seed >> 8) % letters.size()];
          if (!has(run, letter)) {
            if (seed % 64 == 0) break;
            continue;
          }
          std::string bytes;
          append_utf8(letter, bytes);
          ASSERT_TRUE(ahead.accept(bytes)) << schema << " step " << step << " '" << bytes << "'";
          ++count;
        }
        break;  // spans do not outlast new situations
      }
      seed = seed * 1664525 + 1013904223;
      std::string bytes;
      append_utf8(letters[(seed >> 8) % letters.size()], bytes);
      (void)matcher.accept(bytes);
    }
  }
}

}  // namespace
}  // namespace strata::grammar
