// Goal: `strata eval` prints what a script needs, forces each path, and refuses bad
// input in one sentence.
// Method: the binary on tiny models; its JSON is parsed, its errors are read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;

struct Outcome {
  std::string output;  // both streams
  int exit_code = -1;
};

class Eval : public testing::Test {
 protected:
  Outcome run(const std::string& tokens, const std::string& options,
              const std::string& model = std::string(STRATA_TEST_DATA) + "/models/llama.gguf") {
    const std::string command =
        fmt::format("{}/strata eval -m {} --tokens {} {} 2>&1", STRATA_BINARY_DIR, model,
                    folder_.write("tokens.json", tokens), options);
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return outcome;
    char buffer[4096];
    while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) {
      outcome.output.append(buffer, got);
    }
    const int status = pclose(pipe);
    outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return outcome;
  }

  const test::TempDir folder_;
};

TEST_F(Eval, PrintsLogitsArgmaxAndTopAsJson) {
  const Outcome outcome = run("[[1, 2, 3], [4]]", "--json --top 2");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.output;
  const json results = json::parse(outcome.output);
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0]["logits_last"].size(), 384U);
  ASSERT_EQ(results[0]["argmax"].size(), 3U);
  ASSERT_EQ(results[0]["top"].size(), 3U);
  ASSERT_EQ(results[0]["top"][2].size(), 2U);
  EXPECT_EQ(results[0]["top"][2][0][0], results[0]["argmax"][2]);
  EXPECT_LT(results[0]["top"][2][0][1], 0) << "a log-probability";
  EXPECT_GE(results[0]["top"][2][0][1], results[0]["top"][2][1][1]);
  EXPECT_FALSE(run("[[1]]", "--json").output.empty());
}

TEST_F(Eval, PrintsTheSameBitsOnEveryPath) {
  const std::string tokens =
      "[[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18],[5]]";
  const Outcome plain = run(tokens, "--bits");
  ASSERT_EQ(plain.exit_code, 0) << plain.output;
  EXPECT_EQ(plain.output.size(), 2U * 65) << "two lines of hexadecimal digits, nothing else";
  for (const char* options : {"--split 1,2", "--split 1,2,0", "--chunk 5", "--batch 2",
                              "--isa scalar", "--threads 3", "--mapped"}) {
    EXPECT_EQ(run(tokens, std::string("--bits ") + options).output, plain.output) << options;
  }
  EXPECT_NE(run(tokens, "--bits --kv-type q4_0").output, plain.output);
}

TEST_F(Eval, RefusesBadInputWithWhatIsWrong) {
  const auto expect_error = [&](const std::string& tokens, const std::string& options,
                                const std::string& text) {
    const Outcome outcome = run(tokens, options);
    EXPECT_NE(outcome.exit_code, 0) << text;
    EXPECT_THAT(outcome.output, HasSubstr(text));
  };
  expect_error("", "", "not a JSON list");
  expect_error("{}", "", "not a JSON list");
  expect_error("[]", "", "no list of token ids");
  expect_error("[[]]", "", "list 0 is empty");
  expect_error("[[1], 2]", "", "list 1 is no list");
  expect_error("[[1, -1]]", "", "has -1 at place 1, ids are 0 to 383");
  expect_error("[[384]]", "", "has 384 at place 0");
  expect_error("[[2147483648]]", "", "has 2147483648 at place 0");
  expect_error("[[18446744073709551615]]", "", "at place 0");
  expect_error("[[\"a\"]]", "", "has \"a\" at place 0");
  expect_error("[[1.5]]", "", "has 1.5 at place 0");
  expect_error("[[1]]", "--split 1,1", "2 layers in all, the model has 3");
  expect_error("[[1]]", "--isa neon", "neon");
  expect_error("[[1]]", "--kv-type q6_k", "KV type 'q6_k' is not known");
  expect_error(std::string(100'000, '['), "", "not a JSON list");
}

// A NaN in one token's embedding spoils the lists that hold the token, and says so.
TEST_F(Eval, NamesNonFiniteLogits) {
  test::GgufWriter writer = test::make_base_model();
  std::string& data = writer.tensor("token_embd.weight").data;
  const uint32_t nan = 0x7fc00000;
  data.replace(7 * 32 * 4, 4, reinterpret_cast<const char*>(&nan), 4);
  const std::string model = folder_.write("nan.gguf", writer.build());
  EXPECT_EQ(run("[[1, 2, 3]]", "", model).exit_code, 0);
  const Outcome outcome = run("[[1, 7, 3]]", "--json", model);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("non-finite logits"), HasSubstr("DATA_LOSS")));
}

TEST_F(Eval, RefusesAModelThatItCannotRun) {
  test::GgufWriter writer = test::make_base_model();
  writer.set_string("general.architecture", "mamba");
  const Outcome outcome = run("[[1]]", "", folder_.write("mamba.gguf", writer.build()));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("'mamba'"), HasSubstr("hint: it runs llama")));
}

}  // namespace
}  // namespace strata::cli
