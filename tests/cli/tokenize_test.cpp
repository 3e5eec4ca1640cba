// Goal: `strata tokenize` answers programs and people alike, both ways, and says what is wrong with
// its input.
#include "cli/tokenize.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/gguf/gguf_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

std::unique_ptr<Tokenizer> base_tokenizer() {
  const std::string header = test::make_base_model().header();
  const auto file = GgufFile::from_header(std::as_bytes(std::span(header)), "base").value();
  return make_tokenizer(file->metadata()).value();
}

struct Outcome {
  std::string output;
  int exit_code = -1;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) {
    outcome.output.append(buffer, got);
  }
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Tokenize, JsonGoesBothWays) {
  const auto tokenizer = base_tokenizer();
  const json texts = {"the end", "", "\u00e9 <s>", "a\nb"};
  const json ids = tokenize_json(*tokenizer, texts.dump(), {}).value();
  ASSERT_EQ(ids.size(), 4U);
  EXPECT_TRUE(ids[1].empty());
  EXPECT_EQ(tokenize_json(*tokenizer, ids.dump(), {.detokenize = true}).value(), texts);

  const json special = tokenize_json(*tokenizer, "[\"<s>the\"]", {.special = true}).value();
  EXPECT_EQ(special[0][0], 1);
  EXPECT_EQ(tokenize_json(*tokenizer, special.dump(), {.detokenize = true}).value(),
            json::parse("[\"the\"]"));
  EXPECT_EQ(
      tokenize_json(*tokenizer, special.dump(), {.special = true, .detokenize = true}).value(),
      json::parse("[\"<s>the\"]"));
  const json added = tokenize_json(*tokenizer, "[\"the\"]", {.add = true}).value();
  EXPECT_EQ(added[0][0], 1);
  EXPECT_EQ(tokenize_json(*tokenizer, "[]", {}).value(), json::array());
}

TEST(Tokenize, BrokenBytesInADecodedTextAreReplaced) {
  const auto tokenizer = base_tokenizer();
  // Byte tokens follow the three special ones.
  const json text = tokenize_json(*tokenizer, "[[230, 132]]", {.detokenize = true}).value();
  EXPECT_EQ(text, json::parse("[\"\\ufffd\\ufffd\"]"));
}

TEST(Tokenize, BadInputIsNamed) {
  const auto tokenizer = base_tokenizer();
  const auto error = [&](const std::string& input, bool detokenize) {
    const auto result = tokenize_json(*tokenizer, input, {.detokenize = detokenize});
    EXPECT_EQ(result.status().code(), StatusCode::invalid_argument) << input;
    return result.status().message();
  };
  EXPECT_THAT(error("[\"a\"", false), HasSubstr("line 1, column 5"));
  EXPECT_THAT(error("", false), HasSubstr("is no JSON"));
  EXPECT_THAT(error("[\"\xFF\"]", false), HasSubstr("is no JSON"));
  EXPECT_THAT(error(std::string(100000, '['), false), HasSubstr("is no JSON"));
  EXPECT_THAT(error("\"a\"", false), HasSubstr("is a JSON string, must be a list of strings"));
  EXPECT_THAT(error("[\"a\", 1]", false), HasSubstr("input[1] is a number, must be a string"));
  EXPECT_THAT(error("[\"a\"]", true), HasSubstr("input[0] is a string, must be a list of token"));
  EXPECT_THAT(error("[[1], [2, 1.5]]", true), HasSubstr("input[1][1] is a number"));
  for (const char* id : {"-1", "288", "2147483648", "18446744073709551615"}) {
    EXPECT_THAT(error(fmt::format("[[{}]]", id), true),
                HasSubstr(fmt::format("input[0][0] is {}, token ids are 0 to 287", id)));
  }
}

TEST(Tokenize, PeopleGetATable) {
  const auto tokenizer = base_tokenizer();
  const std::string table = tokenize_text(*tokenizer, "the\n", {.add = true}).value();
  EXPECT_THAT(table, HasSubstr("       1  \"<s>\"\n"));
  EXPECT_THAT(table, HasSubstr("\"the\"\n"));
  EXPECT_THAT(table, HasSubstr("\"\\n\"\n"));
  EXPECT_THAT(table, HasSubstr("3 tokens for 4 bytes\n"));
  EXPECT_EQ(tokenize_text(*tokenizer, "[1, 3 4]", {.detokenize = true}).value(),
            std::string("\0\x01\n", 3));
  EXPECT_THAT(tokenize_text(*tokenizer, "7 x", {.detokenize = true}).status().message(),
              HasSubstr("'x' is no token id, they are 0 to 287"));
}

TEST(Tokenize, TheCommandReadsArgumentsAndStandardInput) {
  const test::TempDir dir;
  // The header alone: a file without the tensors' data is refused, one without tensors is not.
  test::GgufWriter writer = test::make_base_model();
  writer.tensors.clear();
  const std::string strata =
      STRATA_BINARY_DIR "/strata tokenize -m " + dir.write("vocabulary.gguf", writer.build());
  Outcome outcome = run("echo '[\"the\"]' | " + strata + " --json --add");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(json::parse(outcome.output)[0][0], 1);
  outcome = run(strata + " 'the'");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("1 token for 3 bytes"));
  outcome = run("echo 7 | " + strata + " --json");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(json::parse(outcome.output)["error"]["message"], HasSubstr("must be a list"));
  outcome = run(STRATA_BINARY_DIR "/strata tokenize -m " + dir.path() + "/none.gguf x");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("none.gguf"));
}

}  // namespace
}  // namespace strata::cli
