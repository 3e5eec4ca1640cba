// Text of an answer: stop strings across tokens, nothing taken back, nothing doubled.
#include "coordinator/engine/text_session.h"

#include <gtest/gtest.h>

#include <memory>

#include "runtime/gguf/gguf_file.h"
#include "runtime/text/tokenizer.h"
#include "tests/support/gguf_writer.h"

namespace strata::coordinator {
namespace {

// A tokenizer whose token i + 3 is byte i, so that any text can be fed byte by byte.
std::unique_ptr<Tokenizer> byte_tokenizer() {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types = {2, 3, 3};
  std::vector<float> scores(3 + 256, 0.0F);
  for (int i = 0; i < 256; ++i) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", i);
    tokens.emplace_back(text);
    types.push_back(6);
  }
  test::GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.set_string("tokenizer.ggml.model", "llama");
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_floats("tokenizer.ggml.scores", scores);
  writer.set_ints("tokenizer.ggml.token_type", types);
  const std::string bytes = writer.header();
  const auto file =
      GgufFile::from_header(std::as_bytes(std::span(bytes.data(), bytes.size())), "test");
  EXPECT_TRUE(file.ok()) << file.status().to_string();
  auto tokenizer = make_tokenizer(file.value()->metadata());
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return std::move(tokenizer).value();
}

struct Outcome {
  std::string text;
  bool stopped = false;
  size_t fed = 0;
};

Outcome feed(const std::string& answer, const std::vector<std::string>& stop) {
  static const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  TextSession session(*tokenizer, 5, stop);
  Outcome outcome;
  for (const char byte : answer) {
    outcome.text += session.push(static_cast<unsigned char>(byte) + 3);
    ++outcome.fed;
    if (session.stopped()) break;
  }
  outcome.text += session.flush();
  outcome.stopped = session.stopped();
  return outcome;
}

TEST(TextSession, GivesTheWholeTextWithoutStopStrings) {
  const Outcome outcome = feed("Grüße, 👋!", {});
  EXPECT_EQ(outcome.text, "Grüße, 👋!");
  EXPECT_FALSE(outcome.stopped);
}

TEST(TextSession, EndsBeforeAStopStringOverManyTokens) {
  const Outcome outcome = feed("A B C D E F G H I", {"G H"});
  EXPECT_EQ(outcome.text, "A B C D E F ");
  EXPECT_TRUE(outcome.stopped);
  EXPECT_EQ(outcome.fed, 15U);
}

TEST(TextSession, GivesBackWhatOnlyLookedLikeAStopString) {
  EXPECT_EQ(feed("ababac", {"abac"}).text, "ab");
  EXPECT_EQ(feed("Ali Alice Alic", {"Alice:"}).text, "Ali Alice Alic");
  EXPECT_EQ(feed("aaab", {"aab"}).text, "a");
  EXPECT_EQ(feed("line\nAlice", {"\nAlice:"}).text, "line\nAlice");
}

TEST(TextSession, TakesTheFirstOfSeveralStopStrings) {
  EXPECT_EQ(feed("one two three", {"three", "two"}).text, "one ");
  EXPECT_EQ(feed("xyz", {"xy", "xyz"}).text, "");
  EXPECT_EQ(feed("hello", {"", "lo"}).text, "hel");
}

TEST(TextSession, NeverSplitsACharacter) {
  static const std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  TextSession session(*tokenizer, -1, {"👋"});
  for (const int32_t byte : {0xF0, 0x9F, 0x98}) EXPECT_EQ(session.push(byte + 3), "");
  EXPECT_EQ(session.push(0x80 + 3), "😀");
}

}  // namespace
}  // namespace strata::coordinator
