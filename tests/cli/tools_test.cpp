// Goal: --tools and --tool-choice make any model write calls that fit, on a terminal, off it and as
// JSON; a chat takes their results; what makes no sense is refused first. Method: the binary on a
// tiny model of random weights at temperature 5, whose own words mean nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/answer_printer.h"
#include "tests/cli/wrong_use.h"
#include "tests/support/command_run.h"
#include "tests/support/json_lines.h"
#include "tests/support/temp_dir.h"

namespace strata::cli {
namespace {

using nlohmann::json;
using test::CommandResult;
using test::json_lines;
using testing::ContainsRegex;
using testing::HasSubstr;

std::string model() { return std::string(STRATA_TEST_DATA) + "/models/qwen3.gguf"; }

constexpr const char* kTools =
    R"([{"name": "f", "parameters": {"type": "object", "properties": {"n": {"enum": [1, 2]}},
        "required": ["n"], "additionalProperties": false}},
        {"name": "g", "parameters": {"additionalProperties": false}}])";

class Tools : public ::testing::Test {
 protected:
  CommandResult strata(std::vector<std::string> arguments, test::CommandOptions options = {}) {
    arguments.insert(arguments.begin(), std::string(STRATA_BINARY_DIR) + "/strata");
    return test::run_command(arguments, options);
  }
  std::vector<std::string> run(std::vector<std::string> more, const std::string& seed = "4") const {
    std::vector<std::string> arguments = {
        "run",           "-m", model(),   "-p",   "x",      "-n", "60",
        "--temperature", "5",  "--tools", tools_, "--seed", seed};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  test::TempDir folder_;
  const std::string tools_ = folder_.write("tools.json", kTools);
};

void expect_valid(const json& call) {
  EXPECT_EQ(call["type"], "function");
  EXPECT_THAT(call["id"].get<std::string>(), ContainsRegex("^call[0-9][0-9][0-9][0-9][0-9]$"));
  const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
  if (call["function"]["name"] == "f") {
    EXPECT_TRUE(arguments["n"] == 1 || arguments["n"] == 2) << call;
  } else {
    EXPECT_EQ(call["function"]["name"], "g");
    EXPECT_EQ(arguments, json::object());
  }
}

TEST_F(Tools, RequiredMakesAnyModelCall) {
  int ended = 0;
  for (const char* seed : {"1", "2", "3", "4"}) {
    const CommandResult result = strata(run({"--tool-choice", "required", "--json"}, seed));
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json answer = json_lines(result.out).at(0);
    if (answer["finish_reason"] == "length") continue;  // calls without end
    ++ended;
    EXPECT_EQ(answer["finish_reason"], "tool_calls");
    EXPECT_TRUE(answer["message"]["content"].is_null());
    ASSERT_FALSE(answer["message"]["tool_calls"].empty()) << answer;
    for (const json& call : answer["message"]["tool_calls"]) expect_valid(call);
  }
  EXPECT_GE(ended, 1);
}

TEST_F(Tools, ANameMakesOneCallOfIt) {
  const CommandResult result = strata(run({"--tool-choice", "g", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json message = json_lines(result.out).at(0)["message"];
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  expect_valid(message["tool_calls"][0]);
  EXPECT_EQ(message["tool_calls"][0]["function"]["name"], "g");
}

TEST_F(Tools, APersonSeesTheCallAsALine) {
  EXPECT_THAT(strata(run({"--tool-choice", "f"})).out,
              ContainsRegex("^f\\(\\{[ \n]*\"n\"[ \n]*:[ \n]*[12][ \n]*\\}\\)\n$"));
  const CommandResult shown =
      strata(run({"--tool-choice", "g"}),
             {.environment = {"TERM=xterm", "NO_COLOR="}, .on_terminal = true});
  EXPECT_THAT(shown.out, HasSubstr("\x1b[1mg\x1b[0m({"));
}

TEST_F(Tools, NoneLeavesTheAnswerAlone) {
  const CommandResult result = strata(run({"--tool-choice", "none", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(json_lines(result.out).at(0)["message"].contains("tool_calls"));
}

TEST_F(Tools, AChatTakesTheResultsAndGoesOn) {
  const CommandResult result =
      strata({"chat", "-m", model(), "--json", "--tools", tools_, "--tool-choice", "g", "-n", "40",
              "--temperature", "5", "--seed", "1"},
             {.input = "call it\n/a/path\n"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> answers = json_lines(result.out);
  ASSERT_EQ(answers.size(), 2U) << result.err;
  EXPECT_EQ(answers[0]["finish_reason"], "tool_calls");
  EXPECT_GT(answers[1]["prompt_tokens"], answers[0]["prompt_tokens"]) << "the call and its result";
}

// Nobody waits for the result of half a call: the next line is a question.
TEST_F(Tools, AChatWaitsForNoResultOfACutCall) {
  const CommandResult result = strata({"chat", "-m", model(), "--json", "--tools", tools_,
                                       "--tool-choice", "f", "-n", "28", "--temperature", "0"},
                                      {.input = "call it\nagain\n"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> answers = json_lines(result.out);
  ASSERT_EQ(answers.size(), 2U) << result.err;
  for (const json& answer : answers) {
    EXPECT_EQ(answer["finish_reason"], "length");
    const json& calls = answer["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 1U) << answer;
    EXPECT_FALSE(json::accept(calls[0]["function"]["arguments"].get<std::string>())) << answer;
  }
}

// The model's file does not exist: nothing of it was looked at.
TEST_F(Tools, WhatMakesNoSenseIsAWrongUse) {
  const std::string bad =
      folder_.write("bad.json", R"([{"name": "f", "parameters": {"type": "object", "if": {}}}])");
  const std::string no_list = folder_.write("list.json", "{}");
  test::expect_wrong_uses(
      {{{"--tools", bad}, "tool f: schema at #: the keyword 'if' is not supported"},
       {{"--tools", no_list}, "tools is no JSON list"},
       {{"--tools", folder_.path() + "/none"}, "cannot open"},
       {{"--tools", tools_, "--tool-choice", "h"}, "'h', which is not in tools"},
       {{"--tool-choice", "required"}, "there are no tools"},
       {{"--tools", tools_, "--regex", "a"}, "both --tools and a regular expression"},
       {{"--tools", tools_, "--reasoning", "loud"}, "loud"}});
  EXPECT_THAT(
      strata({"run", "-m", "/nowhere/none.gguf", "-p", "x", "--raw", "--tools", tools_}).err,
      HasSubstr("--raw"));
}

// Into standard output, which is no terminal here.
std::string printed(const std::vector<AnswerDelta>& deltas, ShowReasoning reasoning) {
  testing::internal::CaptureStdout();
  Terminal terminal;
  AnswerPrinter printer(terminal, reasoning);
  for (const AnswerDelta& delta : deltas) printer.take(delta);
  printer.finish(true);
  return testing::internal::GetCapturedStdout();
}

TEST(AnswerPrinter, PartsStandOnLinesOfTheirOwn) {
  using Kind = AnswerDelta::Kind;
  const std::vector<AnswerDelta> deltas = {
      {Kind::reasoning, "let me", 0},  {Kind::reasoning, " see", 0},
      {Kind::content, "Well:", 0},     {Kind::call, "f", 0},
      {Kind::arguments, "{\"a\":", 0}, {Kind::arguments, "1}", 0},
      {Kind::content, "\n", 0},        {Kind::call, "g", 1},
      {Kind::arguments, "{}", 1}};
  EXPECT_EQ(printed(deltas, ShowReasoning::show), "let me see\n\nWell:\nf({\"a\":1})\ng({})\n");
  EXPECT_EQ(printed(deltas, ShowReasoning::hide), "Well:\nf({\"a\":1})\ng({})\n");
  EXPECT_EQ(printed(deltas, ShowReasoning::on_terminal), "Well:\nf({\"a\":1})\ng({})\n");
  EXPECT_EQ(printed({{Kind::content, "a\n", 0}}, ShowReasoning::show), "a\n");
  EXPECT_EQ(printed({}, ShowReasoning::show), "");
  // A call that was cut off stays open.
  EXPECT_EQ(printed({{Kind::call, "f", 0}, {Kind::arguments, "{\"a\":", 0}}, ShowReasoning::show),
            "f({\"a\":\n");
}

}  // namespace
}  // namespace strata::cli
