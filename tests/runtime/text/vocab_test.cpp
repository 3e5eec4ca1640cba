// Goal: a broken vocabulary gets one sentence that names key and value; an odd one loads.
// Method: a sound vocabulary with one thing changed a case.
#include "runtime/text/vocab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/text/tokenizer.h"
#include "tests/support/vocabularies.h"

namespace strata {
namespace {

using test::bpe_vocabulary;
using test::GgufWriter;
using test::metadata_of;
using test::spm_vocabulary;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint32_t kSpmTokens = 271;

TEST(Vocab, ReadsTextsScoresTypesAndIds) {
  const Vocab vocab = Vocab::load(metadata_of(spm_vocabulary())).value();
  EXPECT_EQ(vocab.size(), static_cast<int32_t>(kSpmTokens));
  EXPECT_EQ(vocab.kind(), VocabKind::spm);
  EXPECT_EQ(vocab.text(0), "<unk>");
  EXPECT_EQ(vocab.type(0), TokenType::unknown);
  EXPECT_EQ(vocab.text(260), "a");
  EXPECT_EQ(vocab.score(260), -260.0F);
  EXPECT_EQ(vocab.find("▁ab"), 266);
  EXPECT_EQ(vocab.find("no such token"), -1);
  EXPECT_EQ(vocab.special().bos, 1);
  EXPECT_EQ(vocab.special().eot, 270) << "by its name";
  EXPECT_TRUE(vocab.add_bos());
  EXPECT_FALSE(vocab.add_eos());
  EXPECT_TRUE(vocab.add_space_prefix());
  EXPECT_THAT(vocab.end_of_generation(), ElementsAre(2, 270));
  EXPECT_TRUE(vocab.is_end_of_generation(2));
  EXPECT_FALSE(vocab.is_end_of_generation(1));
  EXPECT_FALSE(vocab.is_end_of_generation(-1));
}

TEST(Vocab, EndTokensAreControlTokensWhateverTheirType) {
  GgufWriter writer = bpe_vocabulary();
  writer.set_ints("tokenizer.ggml.token_type", std::vector<int32_t>(263, 1));
  const Vocab vocab = Vocab::load(metadata_of(writer)).value();
  EXPECT_TRUE(vocab.is_control(261));
  EXPECT_FALSE(vocab.is_control(260)) << "<|im_start|> ends nothing";
}

TEST(Vocab, IdsAreCheckedForCallers) {
  const Vocab vocab = Vocab::load(metadata_of(spm_vocabulary())).value();
  EXPECT_TRUE(vocab.check_ids(std::vector<int32_t>{}).ok());
  EXPECT_TRUE(vocab.check_ids(std::vector<int32_t>{0, 270}).ok());
  for (const int32_t id : {-1, 271, 2147483647}) {
    const Status status = vocab.check_ids(std::vector<int32_t>{5, id});
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("at index 1 is outside 0 to 270"));
  }
}

struct BadCase {
  std::string text;
  std::function<void(GgufWriter&)> change;
};

void expect_errors(const GgufWriter& sound, const std::vector<BadCase>& cases) {
  for (const BadCase& bad : cases) {
    GgufWriter writer = sound;
    bad.change(writer);
    const auto tokenizer = make_tokenizer(metadata_of(writer));
    ASSERT_FALSE(tokenizer.ok()) << bad.text;
    EXPECT_THAT(tokenizer.status().to_string(), HasSubstr(bad.text));
    EXPECT_THAT(tokenizer.status().message(), HasSubstr("test.gguf")) << "names the file";
  }
}

TEST(Vocab, BrokenFilesAreRefusedByName) {
  expect_errors(
      spm_vocabulary(),
      {
          {"tokenizer.ggml.tokens", [](auto& w) { w.erase("tokenizer.ggml.tokens"); }},
          {"must be string array",
           [](auto& w) {
             w.set_ints("tokenizer.ggml.tokens", {1, 2, 3});
           }},
          {"must be string array", [](auto& w) { w.set_u32("tokenizer.ggml.tokens", 1); }},
          {"'tokenizer.ggml.tokens' is empty",
           [](auto& w) { w.set_strings("tokenizer.ggml.tokens", {}); }},
          {"'tokenizer.ggml.scores' has 270 elements, must have 271",
           [](auto& w) {
             w.set_floats("tokenizer.ggml.scores", std::vector<float>(kSpmTokens - 1));
           }},
          {"'tokenizer.ggml.token_type' has 270 elements, must have 271",
           [](auto& w) {
             w.set_ints("tokenizer.ggml.token_type", std::vector<int32_t>(kSpmTokens - 1, 1));
           }},
          {"has type 7 for token 0",
           [](auto& w) {
             w.set_ints("tokenizer.ggml.token_type", std::vector<int32_t>(kSpmTokens, 7));
           }},
          {"'tokenizer.ggml.bos_token_id' is 271, token id out of range 0 to 270",
           [](auto& w) { w.set_u32("tokenizer.ggml.bos_token_id", kSpmTokens); }},
          {"token id out of range",
           [](auto& w) { w.set_u32("tokenizer.ggml.eos_token_id", 0xFFFFFFFF); }},
          {"token id out of range",
           [](auto& w) { w.set_u32("tokenizer.ggml.unknown_token_id", kSpmTokens); }},
          {"'tokenizer.ggml.add_bos_token'",
           [](auto& w) { w.set_u32("tokenizer.ggml.add_bos_token", 1); }},
          {"'tokenizer.ggml.model'", [](auto& w) { w.erase("tokenizer.ggml.model"); }},
          {"is 't5', a tokenizer that Strata does not have",
           [](auto& w) { w.set_string("tokenizer.ggml.model", "t5"); }},
      });
}

TEST(Vocab, BrokenMergesAreRefusedByNumber) {
  const auto merges = [](std::vector<std::string> list) {
    return [list](GgufWriter& w) { w.set_strings("tokenizer.ggml.merges", list); };
  };
  expect_errors(
      bpe_vocabulary(),
      {
          {"merge 1 'ab' is not two texts", merges({"a b", "ab"})},
          {"merge 0 '' is not two texts", merges({""})},
          {"merge 0 'a ' is not two texts", merges({"a "})},
          {"merge 0 ' a' is not two texts", merges({" a"})},
          {"merge 0 'xx b' has a left part that is no token", merges({"xx b"})},
          {"merge 0 'a yy' has a right part that is no token", merges({"a yy"})},
          {"merge 0 'b a' makes a text that is no token", merges({"b a"})},
          {"tokenizer.ggml.merges", [](auto& w) { w.erase("tokenizer.ggml.merges"); }},
          {"must be string array", [](auto& w) { w.set_u32("tokenizer.ggml.merges", 7); }},
          {"pre-tokenizer 'no-such' is unknown (known are a.x-4.0",
           [](auto& w) { w.set_string("tokenizer.ggml.pre", "no-such"); }},
          {"'tokenizer.ggml.add_bos_token' is true, but there is no tokenizer.ggml.bos_token_id",
           [](auto& w) { w.set_bool("tokenizer.ggml.add_bos_token", true); }},
      });
}

TEST(Vocab, OddTokensLoad) {
  GgufWriter writer = bpe_vocabulary();
  std::vector<std::string> tokens;
  {
    const Vocab vocab = Vocab::load(metadata_of(writer)).value();
    for (int32_t id = 0; id < vocab.size(); ++id) tokens.emplace_back(vocab.text(id));
  }
  const size_t size = tokens.size();
  // Duplicates, an empty text, NUL, broken UTF-8, 10 kB.
  for (const std::string& text :
       {std::string("ab"), std::string("ab"), std::string("a"), std::string(), std::string("\0", 1),
        std::string("\xFF\xFE\x80"), std::string(10240, 'q')}) {
    tokens.push_back(text);
  }
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  std::vector<int32_t> types(tokens.size(), 1);
  for (size_t i = size; i < types.size(); ++i) types[i] = static_cast<int32_t>(i % 4) + 1;
  writer.set_ints("tokenizer.ggml.token_type", types);
  const auto tokenizer = make_tokenizer(metadata_of(writer)).value();
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab abc\xFF q")), "ab abc\uFFFD q");
}

TEST(Vocab, AFileWithoutScoresAndTypesLoads) {
  GgufWriter writer = spm_vocabulary();
  writer.erase("tokenizer.ggml.scores");
  writer.erase("tokenizer.ggml.token_type");
  const auto tokenizer = make_tokenizer(metadata_of(writer));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
}

TEST(Vocab, NoBosIdMeansNoBos) {
  GgufWriter writer = bpe_vocabulary("llama-bpe");
  const auto tokenizer = make_tokenizer(metadata_of(writer)).value();
  EXPECT_FALSE(tokenizer->vocab().add_bos());
  writer.set_u32("tokenizer.ggml.bos_token_id", 262);
  EXPECT_TRUE(make_tokenizer(metadata_of(writer)).value()->vocab().add_bos())
      << "the family adds one unless the file says otherwise";
  writer.set_bool("tokenizer.ggml.add_bos_token", false);
  EXPECT_FALSE(make_tokenizer(metadata_of(writer)).value()->vocab().add_bos());
}

TEST(Vocab, MissingPreTokenizerIsDefault) {
  GgufWriter writer = bpe_vocabulary();
  writer.erase("tokenizer.ggml.pre");
  EXPECT_EQ(make_tokenizer(metadata_of(writer)).value()->vocab().pre(), "default");
}

}  // namespace
}  // namespace strata
