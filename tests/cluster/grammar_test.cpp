// Goal: constrained answers of a cluster fit, and are those of one process, also where the tail has
// no file. Method: the binary against a coordinator with two workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cluster/cluster_harness.h"
#include "tests/support/command_run.h"
#include "tests/support/json_lines.h"
#include "tests/support/temp_dir.h"

namespace strata::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

constexpr const char* kModel = "qwen3.gguf";
constexpr const char* kSchema =
    R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 6},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}},
        "required": ["name", "age", "tags"], "additionalProperties": false})";

// Options of the answer, then where it comes from.
CommandResult strata(const std::vector<std::string>& options, const std::vector<std::string>& where,
                     const std::string& token = {}) {
  std::vector<std::string> arguments = {strata_binary(), "run", "-p", "Hello", "--json"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), where.begin(), where.end());
  return run_command(arguments, {.environment = {"STRATA_TOKEN=" + token}});
}

class ClusterGrammar : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(WithoutFiles, ClusterGrammar, ::testing::Bool());

TEST_P(ClusterGrammar, GivesTheAnswersOfOneProcess) {
  const TempDir folder;
  const std::string schema = folder.write("schema.json", kSchema);
  ClusterHarness cluster({.model = kModel, .workers = 2, .without_files = GetParam()});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  for (int seed = 1; seed <= 4; ++seed) {
    const std::vector<std::string> options = {
        "--json-schema", schema, "--temperature", "5", "-n", "150", "--seed", std::to_string(seed)};
    const CommandResult over =
        strata(options, {"--coordinator", cluster.address()}, cluster.token());
    ASSERT_EQ(over.exit_code, 0) << over.err << cluster.logs();
    const CommandResult alone = strata(options, {"-m", model_path(kModel), "--threads", "1"});
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const json answer = json_lines(over.out).at(0);
    EXPECT_EQ(answer["tokens"], json_lines(alone.out).at(0)["tokens"]);
    EXPECT_EQ(answer["finish_reason"], "stop");
    const json object = json::parse(answer["text"].get<std::string>(), nullptr, false);
    EXPECT_TRUE(object.is_object() && object.size() == 3) << answer;
  }
  EXPECT_EQ(cluster.status().live_sequences, 0U);
}

// The tail knows the family's markers from the grammar alone.
TEST_P(ClusterGrammar, ToolCallsAreThoseOfOneProcess) {
  const TempDir folder;
  const std::string tools = folder.write(
      "tools.json", R"([{"name": "f", "parameters": {"properties": {"n": {"enum": [1, 2, 3]},
      "w": {"type": "string", "maxLength": 4}}, "required": ["n", "w"],
      "additionalProperties": false}}])");
  ClusterHarness cluster({.model = kModel, .workers = 2, .without_files = GetParam()});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  for (const char* choice : {"f", "required", "auto"}) {
    const std::vector<std::string> options = {
        "--tools", tools, "--tool-choice", choice, "--temperature", "5", "-n", "80", "--seed", "2"};
    const CommandResult over =
        strata(options, {"--coordinator", cluster.address()}, cluster.token());
    ASSERT_EQ(over.exit_code, 0) << over.err << cluster.logs();
    const CommandResult alone = strata(options, {"-m", model_path(kModel), "--threads", "1"});
    ASSERT_EQ(alone.exit_code, 0) << alone.err;
    const json answer = json_lines(over.out).at(0);
    EXPECT_EQ(answer["tokens"], json_lines(alone.out).at(0)["tokens"]) << choice;
    EXPECT_EQ(answer["message"], json_lines(alone.out).at(0)["message"]) << choice;
    if (std::string(choice) == "f") {
      ASSERT_EQ(answer["message"]["tool_calls"].size(), 1U) << answer;
      const std::string arguments = answer["message"]["tool_calls"][0]["function"]["arguments"];
      EXPECT_TRUE(json::parse(arguments)["w"].is_string());
    }
  }
}

// The command line refuses it before it asks; other clients learn it from the coordinator.
TEST(ClusterGrammar, ABadGrammarIsRefusedAndTheClusterGoesOn) {
  ClusterHarness cluster({.model = kModel, .workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  remote::GenerateRequest request;
  request.prompt = std::string("Hello");
  request.grammar = {.kind = GrammarSpec::Kind::json_schema, .text = R"({"not": {}})"};
  const Status refused = cluster.client()->generate(request, [](const remote::GenerateEvent&) {});
  EXPECT_EQ(refused.code(), StatusCode::unimplemented);
  EXPECT_THAT(refused.message(), HasSubstr("'not'"));
  EXPECT_EQ(cluster.run("Hello", 8).tokens.size(), 8U);
}

}  // namespace
}  // namespace strata::test
