// Goal: `strata inspect` shows any file's facts truly, to people and to programs, and refuses a bad
// one as every command does.
#include "cli/inspect.h"

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
using test::GgufWriter;
using test::make_base_model;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::Not;

std::shared_ptr<GgufFile> open(const TempDir& dir, const GgufWriter& writer) {
  return GgufFile::open(dir.write("model.gguf", writer.build())).value();
}

// What a shell command printed (standard output and error together) and its exit code.
struct Outcome {
  std::string output;
  int exit_code = -1;
};

Outcome run(const std::string& arguments) {
  const std::string command = std::string(STRATA_BINARY_DIR "/strata ") + arguments + " 2>&1";
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe))
    outcome.output.append(buffer, got);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Inspect, ShowsTheFactsOfAModel) {
  const TempDir dir;
  const std::string text = inspect_text(*open(dir, make_base_model()), {.tensors = true});
  for (const char* wanted :
       {"base: llama, 37,024 parameters\n", "layers          2\n", "context         64 tokens\n",
        "attention       4 heads of 8, 2 for keys and values\n", "vocabulary      288 tokens\n",
        "tokenizer       llama (SentencePiece)\n", "bos 1 <s>, eos 2 </s>, unk 0 <unk>", "F32",
        "100.0 %", "string[288]", "282 more", "{32, 288}", "Tensors (21)"}) {
    EXPECT_THAT(text, HasSubstr(wanted));
  }
}

TEST(Inspect, JsonHoldsTheSameFacts) {
  const TempDir dir;
  const auto model = open(dir, make_base_model());
  const json report = inspect_json(*model, {.tensors = true});
  EXPECT_EQ(report["model"]["architecture"], "llama");
  EXPECT_EQ(report["model"]["layers"], 2);
  EXPECT_EQ(report["model"]["kv_heads"], 2);
  EXPECT_EQ(report["model"]["parameters"], model->parameter_count());
  EXPECT_EQ(report["tokenizer"]["vocabulary"], 288);
  EXPECT_EQ(report["tokenizer"]["special_tokens"]["bos"]["text"], "<s>");
  EXPECT_EQ(report["metadata"]["llama.block_count"], 2);
  EXPECT_EQ(report["metadata"]["tokenizer.ggml.tokens"]["count"], 288);
  EXPECT_EQ(report["metadata"]["tokenizer.ggml.tokens"]["first"][1], "<s>");
  EXPECT_EQ(report["types"][0]["type"], "F32");
  EXPECT_EQ(report["types"][0]["bits_per_weight"], 32.0);
  ASSERT_EQ(report["tensors"].size(), 21u);
  EXPECT_EQ(report["tensors"][0]["shape"], json({32, 288}));
  EXPECT_FALSE(inspect_json(*model).contains("tensors"));
}

TEST(Inspect, TakesUnknownArchitecturesAndFilesWithoutTensors) {
  const TempDir dir;
  GgufWriter writer;
  writer.set_string("general.architecture", "never-seen");
  writer.set_ints("never-seen.attention.head_count", {4, 8, 8});
  const std::string text = inspect_text(*open(dir, writer));
  EXPECT_THAT(text, HasSubstr("never-seen"));
  EXPECT_THAT(text, HasSubstr("4 to 8 heads"));
  EXPECT_THAT(text, HasSubstr("No tensors"));
  const TempDir other;
  EXPECT_THAT(inspect_text(*open(other, GgufWriter())), HasSubstr("(no name): unknown"));
}

TEST(Inspect, OddValuesLeaveFactsOutAndNeverReachTheTerminal) {
  const TempDir dir;
  GgufWriter writer = make_base_model();
  writer.set_string("general.name", "evil\x1b[2J\nname");
  writer.set_string("llama.block_count", "two");
  writer.set_u32("tokenizer.ggml.bos_token_id", 4000000000);
  writer.set_strings("tokenizer.ggml.tokens", {"\xFF", "\x1b]0;x\x07", std::string(100'000, 'x')});
  writer.set_string("chat", std::string(100'000, 'y'));
  const auto model = open(dir, writer);
  const std::string text = inspect_text(*model);
  EXPECT_THAT(text, HasSubstr("evil\\x1b[2J\\nname"));
  EXPECT_THAT(text, HasSubstr("bos 4000000000 (not in the vocabulary)"));
  EXPECT_THAT(text, Not(HasSubstr("layers ")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_LT(text.size(), 8000u);
  EXPECT_FALSE(inspect_json(*model)["model"].contains("layers"));
}

TEST(Inspect, TheCommandPrintsJsonWithTheDigest) {
  const TempDir dir;
  const std::string path = dir.write("base.gguf", make_base_model().build());
  const Outcome outcome = run("inspect --json --digest " + path);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  const json report = json::parse(outcome.output, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << outcome.output;
  EXPECT_EQ(report["digest"].get<std::string>().size(), 64u);
  EXPECT_THAT(run("inspect " + path).output, HasSubstr("base: llama"));
}

TEST(Inspect, ABadFileIsOneSentenceAndExitCodeOne) {
  const TempDir dir;
  const std::string path = dir.write("bad.gguf", "GGML and more of it, long enough");
  const Outcome text = run("inspect " + path);
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.output, HasSubstr("error: " + path + ": not a GGUF file"));
  const Outcome as_json = run("inspect --json " + path);
  EXPECT_EQ(as_json.exit_code, 1);
  const json error = json::parse(as_json.output, nullptr, false);
  ASSERT_FALSE(error.is_discarded()) << as_json.output;
  EXPECT_EQ(error["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(run("inspect").exit_code, 2);
}

}  // namespace
}  // namespace strata::cli
