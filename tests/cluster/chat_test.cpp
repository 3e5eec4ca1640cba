// Goal: clients of a cluster see the same as those of one process: long chats, odd prompts, errors
// as objects, and `eval` beyond an attention window.
// Method: the binary against a coordinator with two workers, or over worker processes of its own.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/cluster/cluster_harness.h"
#include "tests/support/command_run.h"
#include "tests/support/json_lines.h"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;

CommandResult strata(const ClusterHarness& cluster, std::vector<std::string> arguments,
                     const std::string& input = {}) {
  arguments.insert(arguments.begin(), strata_binary());
  arguments.insert(arguments.end(), {"--coordinator", cluster.address(), "--json"});
  return run_command(arguments,
                     {.input = input, .environment = {"STRATA_TOKEN=" + cluster.token()}});
}

TEST(ClusterChat, TenTurnsBeyondASmallContextKeepTheConnection) {
  ClusterHarness cluster(
      {.model = "qwen3.gguf", .workers = 2, .coordinator_arguments = {"--ctx", "256"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  std::string turns;
  for (int i = 0; i < 10; ++i) turns += fmt::format("Turn {}: go on, please.\n", i);
  const CommandResult result = strata(
      cluster, {"chat", "--temperature", "0", "--ignore-end", "-n", "20"}, turns + "/reset\nHi\n");
  EXPECT_EQ(result.exit_code, 1) << result.err;
  const std::vector<json> answers = json_lines(result.out);
  const std::vector<json> errors = json_lines(result.err);
  EXPECT_EQ(answers.size() + errors.size(), 11U);
  ASSERT_FALSE(errors.empty()) << "ten turns are longer than the context";
  for (const json& answer : answers) EXPECT_EQ(answer["finish_reason"], "length");
  for (const json& error : errors) {
    EXPECT_THAT(error["error"]["message"].get<std::string>(),
                ContainsRegex("the prompt has [0-9]+ tokens and the context holds 256"));
  }
  EXPECT_EQ(answers.back()["generated_tokens"], 20) << "after /reset";
  EXPECT_EQ(cluster.status().live_sequences, 0U);
  // An answer that meets the context's end in mid-sentence is no error.
  const CommandResult endless =
      strata(cluster, {"chat", "--temperature", "0", "--ignore-end"}, "Hello\nHello\n");
  EXPECT_EQ(json_lines(endless.out).at(0)["finish_reason"], "length");
  EXPECT_EQ(json_lines(endless.err).size(), 1U);
}

TEST(ClusterChat, OddPromptsGiveWhatOneProcessGives) {
  ClusterHarness cluster({.model = "qwen3.gguf", .workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  for (const std::string& prompt :
       {std::string(), std::string("\x80"), std::string("\xF0\x9F\x98"), std::string("\u0301"),
        std::string("<|im_start|><|im_end|>"), std::string("漢字 🙂 é")}) {
    const std::vector<std::string> arguments = {"run",           "-p", prompt,        "-n", "6",
                                                "--temperature", "0",  "--ignore-end"};
    const CommandResult over = strata(cluster, arguments);
    ASSERT_EQ(over.exit_code, 0) << over.err;
    std::vector<std::string> alone = arguments;
    alone.insert(alone.begin(), strata_binary());
    alone.insert(alone.end(), {"-m", model_path("qwen3.gguf"), "--json"});
    EXPECT_EQ(json_lines(over.out).at(0)["tokens"],
              json_lines(run_command(alone).out).at(0)["tokens"])
        << prompt;
  }
  const CommandResult long_line =
      strata(cluster, {"chat", "-n", "4"}, std::string(1 << 20, 'a') + "\nok\n");
  EXPECT_THAT(json_lines(long_line.err).at(0)["error"]["message"].get<std::string>(),
              ContainsRegex("the prompt has [0-9]+ bytes, which make [0-9]+ tokens at least, and "
                            "the context holds 512"));
  EXPECT_EQ(json_lines(long_line.out).size(), 1U);
}

TEST(ClusterJson, ErrorsStandAloneOnStandardError) {
  ClusterHarness cluster({.workers = 1, .coordinator_arguments = {"--ctx", "64"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  const auto error_of = [&](std::vector<std::string> arguments) {
    const CommandResult result = strata(cluster, std::move(arguments));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.out, IsEmpty());
    const std::vector<json> errors = json_lines(result.err);
    EXPECT_EQ(errors.size(), 1U) << result.err;
    return errors.empty() ? json::object() : errors[0]["error"];
  };
  EXPECT_THAT(error_of({"run", "-p", "x", "--wait", "1"})["message"].get<std::string>(),
              HasSubstr("have joined"));
  cluster.start_worker("worker-1");
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_THAT(error_of({"run", "--raw", "-p", std::string(500, 'a')})["message"].get<std::string>(),
              ContainsRegex("the prompt has [0-9]+ tokens and the context holds 64"));
  EXPECT_EQ(error_of({"run", "-p", "x", "--raw", "--top-p", "7"})["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(strata(cluster, {"ps"}).exit_code, 0);
}

// Longer than gemma3's window and than one KV block group of it.
TEST(ClusterEval, ListsLongerThanAWindowHaveTheBitsOfOneProcess) {
  const TempDir folder;
  std::string lists = "[";
  for (const int length : {400, 130, 7}) {
    lists += lists.size() > 1 ? ",[" : "[";
    for (int i = 0; i < length; ++i) lists += fmt::format("{}{}", i > 0 ? "," : "", (i * 37) % 331);
    lists += "]";
  }
  const std::string ids = folder.write("ids.json", lists + "]");
  const auto bits = [&](std::vector<std::string> options) {
    std::vector<std::string> arguments = {
        strata_binary(), "eval",      "-m", model_path("gemma3.gguf"), "--tokens", ids,
        "--bits",        "--threads", "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const CommandResult result = run_command(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string one = bits({});
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 3);
  EXPECT_EQ(bits({"--workers", "2"}), one);
  EXPECT_EQ(bits({"--workers", "3", "--chunk", "33", "--batch", "3"}), one);
  EXPECT_EQ(bits({"--workers", "2", "--split", "worker-2:2,worker-1:5"}), one);
}

}  // namespace
}  // namespace strata::test
