// Goal: special tokens cut the text exactly where the reference cuts it, in time linear in the
// text.
#include "runtime/text/special_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/vocabularies.h"

namespace strata {
namespace {

using ::testing::ElementsAre;

// Fragments as text; tokens in brackets.
std::vector<std::string> parts(const Vocab& vocab, std::string_view text, bool parse_special) {
  const SpecialSplitter splitter(vocab);
  std::vector<std::string> result;
  for (const TextFragment& fragment : splitter.split(text, parse_special)) {
    const std::string part(text.substr(fragment.begin, fragment.end - fragment.begin));
    result.push_back(fragment.token < 0 ? part : "[" + part + "]");
  }
  return result;
}

Vocab vocabulary_of(const std::vector<std::pair<std::string, int32_t>>& extra,
                    const std::string& name = "test") {
  test::GgufWriter writer;
  std::vector<std::string> tokens = {"<unk>"};
  std::vector<int32_t> types = {2};
  for (const auto& [text, type] : extra) {
    tokens.push_back(text);
    types.push_back(type);
  }
  writer.set_string("general.name", name);
  writer.set_string("tokenizer.ggml.model", "llama");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_ints("tokenizer.ggml.token_type", types);
  return Vocab::load(test::metadata_of(writer)).value();
}

TEST(SpecialSplitter, ControlTokensOnlyIfAskedFor) {
  const Vocab vocab = vocabulary_of({{"<c>", 3}, {"<u>", 4}, {"<n>", 1}});
  const std::string text = "a<c><u>b<n><unk>";
  EXPECT_THAT(parts(vocab, text, false), ElementsAre("a<c>", "[<u>]", "b<n><unk>"));
  EXPECT_THAT(parts(vocab, text, true), ElementsAre("a", "[<c>]", "[<u>]", "b<n>", "[<unk>]"));
}

TEST(SpecialSplitter, LongerTokensGoFirstEvenFurtherRight) {
  const Vocab vocab = vocabulary_of({{"ab", 4}, {"bcd", 4}, {"\n", 4}, {"\n\n", 4}});
  EXPECT_THAT(parts(vocab, "abcd", false), ElementsAre("a", "[bcd]"));
  EXPECT_THAT(parts(vocab, "abab", false), ElementsAre("[ab]", "[ab]"));
  EXPECT_THAT(parts(vocab, "\n\n\n", false), ElementsAre("[\n\n]", "[\n]"));
}

TEST(SpecialSplitter, Phi3TokensSwallowTheSpaceBehindThem) {
  const Vocab vocab = vocabulary_of({{"<|user|>", 3}, {"<s>", 3}}, "Phi-3 mini");
  EXPECT_THAT(parts(vocab, "a <|user|> \n b<s> c", true),
              ElementsAre("a ", "[<|user|>]", "b", "[<s>]", " c"));
}

TEST(SpecialSplitter, NothingInNothingOut) {
  const Vocab vocab = vocabulary_of({{"", 4}, {"x", 4}});
  EXPECT_TRUE(parts(vocab, "", true).empty());
  EXPECT_THAT(parts(vocab, "a", true), ElementsAre("a"));
  EXPECT_THAT(parts(vocab, "x", true), ElementsAre("[x]"));
}

TEST(SpecialSplitter, ThousandsOfTokensInALongTextTakeLinearTime) {
  std::vector<std::pair<std::string, int32_t>> tokens;
  std::string text;
  for (int i = 0; i < 6000; ++i) {
    tokens.emplace_back("<unused" + std::to_string(i) + ">", 3);
    text += tokens.back().first + " word ";
  }
  while (text.size() < 1000000) text += text.substr(0, 100000);
  const Vocab vocab = vocabulary_of(tokens);
  size_t special = 0;
  for (const TextFragment& fragment : SpecialSplitter(vocab).split(text, true)) {
    special += fragment.token >= 0 ? 1 : 0;
  }
  EXPECT_GT(special, 50000U);
}

}  // namespace
}  // namespace strata
