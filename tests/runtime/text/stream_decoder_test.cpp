// Goal: a stream gives the same text as decode(), in whole characters. Method: characters whose
// bytes are tokens of their own, cut at every place; random ids of a real vocabulary.
#include "runtime/text/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/base/utf8.h"
#include "runtime/text/unicode.h"
#include "tests/runtime/text/open_tokenizer.h"
#include "tests/support/vocabularies.h"

namespace strata {
namespace {

TEST(StreamDecoder, HoldsACharacterBackUntilItIsWhole) {
  const auto tokenizer = make_tokenizer(test::metadata_of(test::bpe_vocabulary())).value();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.pending_bytes(), 3U);
  EXPECT_EQ(decoder.push(0x80), "\U0001F600");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, ShowsWhatCannotBecomeACharacter) {
  const auto tokenizer = make_tokenizer(test::metadata_of(test::bpe_vocabulary())).value();
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xE2), "");
  EXPECT_EQ(decoder.push('a'), "\uFFFDa");
  EXPECT_EQ(decoder.push(0x80), "\uFFFD");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.pending_bytes(), 0U);
}

TEST(StreamDecoder, TheTokenBeforeDecidesOnALeadingSpace) {
  const auto tokenizer = make_tokenizer(test::metadata_of(test::spm_vocabulary())).value();
  EXPECT_EQ(StreamDecoder(*tokenizer).push(266), "ab");
  EXPECT_EQ(StreamDecoder(*tokenizer, 1).push(266), "ab") << "after <s>";
  EXPECT_EQ(StreamDecoder(*tokenizer, 260).push(266), " ab") << "after a word";
}

TEST(StreamDecoder, ControlTokensShowOnRequest) {
  const auto tokenizer = make_tokenizer(test::metadata_of(test::bpe_vocabulary())).value();
  EXPECT_EQ(StreamDecoder(*tokenizer).push(261), "");
  EXPECT_EQ(StreamDecoder(*tokenizer, -1, {.special = true}).push(261), "<|im_end|>");
}

TEST(StreamDecoder, TogetherItIsTheDecodedText) {
  for (const char* name : {"gpt-2", "llama-spm", "qwen2"}) {
    const auto tokenizer =
        test::open_tokenizer(std::string(STRATA_TEST_VOCABULARIES "/") + name + ".gguf");
    ASSERT_NE(tokenizer, nullptr);
    std::mt19937_64 random(11);
    for (int round = 0; round < 200; ++round) {
      StreamDecoder decoder(*tokenizer);
      std::vector<int32_t> ids;
      std::string streamed;
      for (int i = 0; i < 50; ++i) {
        // Low ids are bytes in these vocabularies.
        const bool low = random() % 2 == 0;
        const uint64_t bound = low ? 260 : static_cast<uint64_t>(tokenizer->vocab().size());
        ids.push_back(static_cast<int32_t>(random() % bound));
        const std::string part = decoder.push(ids.back());
        ASSERT_TRUE(is_utf8(part));
        streamed += part;
      }
      streamed += decoder.flush();
      ASSERT_EQ(streamed, replace_invalid_utf8(tokenizer->decode(ids))) << name << round;
    }
  }
}

}  // namespace
}  // namespace strata
