// Goal: every family's patterns compile, words cover the text, and each family splits as it is
// known to. Method: hand-made sentences; long texts that a careless pattern takes minutes for.
#include "runtime/text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> words(std::string_view name, std::string_view text) {
  const Pretokenizer pretokenizer = Pretokenizer::create(name).value();
  std::vector<std::string> result;
  size_t begin = 0;
  for (const size_t end : pretokenizer.split(text)) {
    EXPECT_GT(end, begin);
    result.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return result;
}

TEST(Pretokenizer, EveryNameWorks) {
  for (const PretokenizerSpec& spec : pretokenizer_specs()) {
    for (const std::string_view name : spec.names) {
      const Result<Pretokenizer> made = Pretokenizer::create(name);
      ASSERT_TRUE(made.ok()) << made.status().to_string();
      EXPECT_EQ(find_pretokenizer_spec(name), &spec) << name << " is in two families";
    }
  }
}

TEST(Pretokenizer, AnUnknownNameIsAnErrorWithTheKnownOnes) {
  const Result<Pretokenizer> made = Pretokenizer::create("gpt-9");
  EXPECT_EQ(made.status().code(), StatusCode::unimplemented);
  EXPECT_THAT(made.status().message(), HasSubstr("'gpt-9' is unknown"));
  EXPECT_THAT(made.status().hint(), HasSubstr("llama-bpe"));
}

TEST(Pretokenizer, SplitsAsItsFamily) {
  EXPECT_THAT(words("gpt-2", "Hello  world's 1234 a\n\nb"),
              ElementsAre("Hello", " ", " world", "'s", " 1234", " a", "\n", "\n", "b"));
  EXPECT_THAT(words("llama-bpe", "Hello  world'S 12345\n\nb"),
              ElementsAre("Hello", " ", " world", "'S", " ", "123", "45", "\n\n", "b"));
  EXPECT_THAT(words("qwen2", "x=12"), ElementsAre("x", "=", "1", "2"));
  EXPECT_THAT(words("smollm", "a12 b"), ElementsAre("a", "1", "2", " b"));
  EXPECT_THAT(words("deepseek-coder", "a\n\nb 1"), ElementsAre("a", "\n", "\n", "b", " ", "1"));
  EXPECT_THAT(words("default", "x+12345"), ElementsAre("x", "+", "123", "45"));
  EXPECT_THAT(words("tekken", "helloWorld"), ElementsAre("hello", "World"));
  EXPECT_THAT(words("gpt-4o", "HELLOWorld's"), ElementsAre("HELLOWorld's"));
  EXPECT_THAT(words("seed-coder", "a12"), ElementsAre("a", "1", "2"));
  EXPECT_THAT(words("deepseek-v3", "a1234"), ElementsAre("a", "123", "4"));
}

TEST(Pretokenizer, SpacesAreUnicodesWhiteSpace) {
  // U+180E was a space before Unicode 6.3; U+200B never was; U+3000 is.
  EXPECT_THAT(words("llama-bpe", "a\u180Eb"), ElementsAre("a", "\u180Eb"));
  EXPECT_THAT(words("gpt-2", "!\u180E!"), ElementsAre("!\u180E!"));
  EXPECT_THAT(words("gpt-2", "!\u200B!"), ElementsAre("!\u200B!"));
  EXPECT_THAT(words("gpt-2", "!\u3000!"), ElementsAre("!", "\u3000", "!"));
}

TEST(Pretokenizer, EmptyTextHasNoWords) {
  EXPECT_TRUE(Pretokenizer::create("gpt-2").value().split("").empty());
}

TEST(Pretokenizer, LongRunsAreSplitInLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  for (const PretokenizerSpec& spec : pretokenizer_specs()) {
    for (const char* unit : {"a", "A", " ", "\n", " \n", "1", ".", "a ", "é", "漢", "aA", "'s"}) {
      std::string text;
      while (text.size() < 100000) text += unit;
      const std::string closed = "x" + text + "x";
      EXPECT_FALSE(words(spec.names[0], closed).empty());
    }
  }
  // 16 families times 12 texts of 100 kB took 2.5 s; quadratic time would be hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

}  // namespace
}  // namespace strata
