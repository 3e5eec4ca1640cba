// Goal: answers of every family become reasoning, content and calls, however the text was cut;
// where it breaks off, arguments are what the model wrote of them and nothing else.
#include "runtime/text/answer/answer_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "runtime/text/answer/tool_format.h"
#include "runtime/text/answer/tools.h"
#include "tests/support/parsed_answer.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Answer = test::ParsedAnswer;
using test::parse_answer;

struct Family {
  std::string name;
  std::string source;  // enough of a template to know it by
  std::string text;
  Answer answer;
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"hermes",
       "<tool_call>",
       "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"], \"b\": "
       "{}}}\n"
       "</tool_call>\n<tool_call>\n{\"arguments\": {\"x\": 1}, \"name\": \"g\"}\n</tool_call>",
       {"", "Let me see.\n\n", {{"f", R"({"a": [1, "}"], "b": {}})"}, {"g", R"({"x": 1})"}}}},
      {"qwen3",
       "<tool_call> <think> </think>",
       "<think>\nhm\n\nso\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": "
       "{}}\n</tool_call>",
       {"hm\n\nso", "", {{"f", "{}"}}}},
      {"llama3",
       "<|python_tag|>",
       R"({"name": "f", "parameters": {"q": "a\"b"}})",
       {"", "", {{"f", R"({"q": "a\"b"})"}}}},
      {"llama3_tag",
       "<|python_tag|>",
       R"(<|python_tag|>{"type": "function", "name": "f", "parameters": {"q": 1.5e3}})",
       {"", "", {{"f", R"({"q": 1.5e3})"}}}},
      {"mistral",
       "[TOOL_CALLS]",
       R"([TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": {}}])",
       {"", "", {{"f", R"({"a": 1})"}, {"g", "{}"}}}},
      {"mistral_args",
       "[TOOL_CALLS] [ARGS]",
       R"([TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[ARGS]{})",
       {"", "", {{"f", R"({"a": 1})"}, {"g", "{}"}}}},
      {"deepseek3",
       "<｜tool▁calls▁begin｜>",
       "Ok<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": "
       "1}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "Ok", {{"f", R"({"a": 1})"}, {"g", "{}"}}}},
      {"deepseek31",
       "<｜tool▁calls▁begin｜>",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜>"
       "<｜tool▁calls▁end｜>",
       {"", "", {{"f", R"({"a": 1})"}}}},
      {"qwen_coder",
       "<tool_call><function=",
       "<tool_call>\n<function=f>\n<parameter=q>\na \"b\"\nc\n</parameter>\n<parameter=n>\n5\n"
       "</parameter>\n</function>\n</tool_call>",
       {"", "", {{"f", R"({"q": "a \"b\"\nc", "n": 5})"}}}},
      {"gpt_oss",
       "<|channel|><|message|>",
       "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
       "to=functions.f <|constrain|>json<|message|>{\"a\": 1}<|call|>",
       {"hm", "", {{"f", R"({"a": 1})"}}}},
      {"gpt_oss_final",
       "<|channel|><|message|>",
       "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi < "
       "you",
       {"hm", "Hi < you", {}}},
      {"generic_list",
       "",
       R"([{"name": "f", "arguments": "{\"a\": 1}"}, {"function": {"name": "g", "arguments": {"b": 2}}}])",
       {"", "", {{"f", R"({"a": 1})"}, {"g", R"({"b": 2})"}}}},
      {"granite",
       "<|tool_call|>",
       R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1}}])",
       {"", "", {{"f", R"({"a": 1})"}}}},
  };
  return all;
}

AnswerOptions with_tools() {
  AnswerOptions options;
  options.parse_calls = true;
  options.tool_names = {"f", "g"};
  options.parsed_parameters = {"f.n"};
  return options;
}

TEST(AnswerParser, KnowsEachFamilysCalls) {
  for (const Family& family : families()) {
    const ToolFormat format = tool_format_of(family.source, true);
    const Answer answer = parse_answer(format, with_tools(), family.text);
    EXPECT_EQ(answer.reasoning, family.answer.reasoning) << family.name;
    EXPECT_EQ(answer.content, family.answer.content) << family.name;
    EXPECT_EQ(answer.calls, family.answer.calls) << family.name;
  }
}

TEST(AnswerParser, NoCutMatters) {
  for (const Family& family : families()) {
    const ToolFormat format = tool_format_of(family.source, true);
    for (size_t piece = 1; piece < 12; ++piece) {
      EXPECT_EQ(parse_answer(format, with_tools(), family.text, piece),
                parse_answer(format, with_tools(), family.text))
          << family.name << " in pieces of " << piece;
    }
  }
}

// Each call is a beginning of the whole answer's, also where the pieces are single bytes.
TEST(AnswerParser, NothingIsAddedWhereverTheAnswerBreaksOff) {
  for (const Family& family : families()) {
    const ToolFormat format = tool_format_of(family.source, true);
    for (size_t length = 0; length <= family.text.size(); ++length) {
      const std::string text = family.text.substr(0, length);
      const Answer answer = parse_answer(format, with_tools(), text);
      EXPECT_EQ(parse_answer(format, with_tools(), text, 1), answer) << text;
      ASSERT_LE(answer.calls.size(), family.answer.calls.size()) << text;
      for (size_t i = 0; i < answer.calls.size(); ++i) {
        const auto& [name, arguments] = answer.calls[i];
        EXPECT_EQ(name, family.answer.calls[i].first);
        const std::string& whole = family.answer.calls[i].second;
        EXPECT_TRUE(whole.starts_with(arguments)) << text << ": " << arguments;
        EXPECT_TRUE(arguments == whole || i + 1 == answer.calls.size());
      }
    }
  }
}

TEST(AnswerParser, ACutCallEndsWhereTheModelStopped) {
  struct Case {
    const char* source;
    const char* text;
    const char* arguments;
  };
  for (const Case& each : {
           Case{"<tool_call>", R"(<tool_call>{"name": "f", "arguments": {"a": "x",)",
                R"({"a": "x",)"},
           Case{"<tool_call>", R"(<tool_call>{"name": "f", "arguments": {"a": "x", "b": 12)",
                R"({"a": "x", "b": 12)"},
           Case{"<tool_call>", R"(<tool_call>{"name": "f", "arguments": {"a": tr)", R"({"a": tr)"},
           Case{"<|python_tag|>", R"({"name": "f", "parameters": {"q": "\ud8)", R"({"q": "\ud8)"},
           Case{"", R"([{"name": "f", "arguments": {"b":)", R"({"b":)"},
           Case{"[TOOL_CALLS] [ARGS]", R"([TOOL_CALLS]f[ARGS]{"a": [1, )", R"({"a": [1, )"},
           Case{"<｜tool▁calls▁begin｜>",
                "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a", "{\"a"},
           Case{"<|channel|><|message|>",
                R"(<|channel|>commentary to=functions.f <|message|>{"a": nul)", R"({"a": nul)"},
           Case{"<tool_call><function=", "<tool_call>\n<function=f>\n", "{"},
           Case{"<tool_call><function=", "<tool_call>\n<function=f>\n<parameter=q", "{"},
           Case{"<tool_call><function=", "<tool_call>\n<function=f>\n<parameter=q>\nPar",
                R"({"q": "Par)"},
           Case{"<tool_call><function=", "<tool_call><function=f><parameter=q>\nParis\n</para",
                R"({"q": "Paris)"},
           Case{"<tool_call><function=", "<tool_call><function=f><parameter=n>\n1", R"({"n": 1)"},
           // Spoiled, and ended by the model in the middle.
           Case{"<tool_call>", R"(<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>)",
                R"({"a": 1,)"},
           Case{"<tool_call><function=", "<tool_call><function=f><parameter=q>x</tool_call>",
                R"({"q": "x)"},
           Case{"<|channel|><|message|>",
                R"(<|channel|>commentary to=functions.f <|message|>{"a": <|call|>)", R"({"a": )"},
       }) {
    for (const size_t piece : {0, 1, 3}) {
      AnswerParser parser(tool_format_of(each.source, true), with_tools());
      Answer answer;
      const std::string text = each.text;
      const size_t step = piece == 0 ? text.size() : piece;
      for (size_t at = 0; at < text.size(); at += step) {
        test::take(parser.push(text.substr(at, step)), answer);
      }
      test::take(parser.finish(), answer);
      ASSERT_EQ(answer.calls.size(), 1U) << each.text;
      EXPECT_EQ(answer.calls[0].second, each.arguments) << each.text;
      EXPECT_FALSE(parser.ends_with_calls()) << each.text;
    }
  }
}

TEST(AnswerParser, AWholeCallIsOneAlsoBeforeItsEndMarker) {
  struct Case {
    const char* source;
    const char* text;
    const char* arguments;
  };
  for (const Case& each :
       {Case{"<tool_call>", R"(<tool_call>{"name": "f", "arguments": {"a": 1 })", R"({"a": 1 })"},
        Case{"<tool_call>", R"(<tool_call>{"name": "f"})", "{}"},
        Case{"[TOOL_CALLS] [ARGS]", "[TOOL_CALLS]f[ARGS]{}", "{}"},
        Case{"<tool_call><function=",
             "<tool_call><function=f><parameter=q></function></parameter></function>",
             R"({"q": "</function>"})"},
        Case{"<tool_call><function=",
             "<tool_call><function=f><parameter=a</parameter></function></tool_call>", "{}"},
        Case{"<|channel|><|message|>", "<|channel|>commentary to=functions.f <|message|><|call|>",
             "{}"}}) {
    AnswerParser parser(tool_format_of(each.source, true), with_tools());
    Answer answer;
    test::take(parser.push(each.text), answer);
    test::take(parser.finish(), answer);
    ASSERT_EQ(answer.calls.size(), 1U) << each.text;
    EXPECT_EQ(answer.calls[0].second, each.arguments) << each.text;
    EXPECT_TRUE(parser.ends_with_calls()) << each.text;
  }
}

TEST(AnswerParser, WhatOnlyLooksLikeACallIsContent) {
  const ToolFormat bare = tool_format_of("", false);
  for (const char* text : {R"({"a": 1})", R"({"name": "unknown", "arguments": {}})", "{broken",
                           "[1, 2]", R"({"name": "f")", "[]", "{", "x {\"name\": \"f\"}"}) {
    EXPECT_EQ(parse_answer(bare, with_tools(), text), (Answer{"", text, {}})) << text;
  }
  const ToolFormat hermes = tool_format_of("<tool_call>", true);
  for (const char* text :
       {"<tool_call>no", "a < b <tool_ca", "<tool_call>{\"x\": 1}</tool_call>"}) {
    EXPECT_EQ(parse_answer(hermes, with_tools(), text).content, text);
  }
  EXPECT_EQ(parse_answer(hermes, {}, families()[0].text).content, families()[0].text) << "no tools";
}

TEST(AnswerParser, ReasoningThatThePromptBegan) {
  const ToolFormat format = tool_format_of("<think></think>", false);
  EXPECT_TRUE(prompt_opens_reasoning(format, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(prompt_opens_reasoning(format, "<think>\n\n</think>\n\n"));
  AnswerOptions options;
  options.starts_in_reasoning = true;
  EXPECT_EQ(parse_answer(format, options, "hm\n</think>\n\nHi"), (Answer{"hm", "Hi", {}}));
  EXPECT_EQ(parse_answer(format, options, "never ends"), (Answer{"never ends", "", {}}));
  options.starts_in_reasoning = false;
  EXPECT_EQ(parse_answer(format, options, "\n<think>a</think>b<think>c"),
            (Answer{"a", "b<think>c", {}}));
  options.split_reasoning = false;
  EXPECT_EQ(parse_answer(format, options, "<think>a</think> b").content, "<think>a</think> b");
}

TEST(Tools, DeepAndLongListsAreRefusedQuickly) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(parse_tools("[{\"name\":\"f\",\"parameters\":{\"a\":" + deep).status().message(),
            "tools nest deeper than 200");
  EXPECT_EQ(parse_tool_choice(deep, {}).status().message(), "tool_choice nest deeper than 200");
  EXPECT_EQ(parse_tools(std::string("[]\0 junk", 8)).status().message(),
            "tools: no JSON at byte 2: a NUL byte");
  std::string long_list = "[{\"name\":\"f0\"}";
  for (int i = 1; i < 100'000; ++i) long_list += ",{\"name\":\"f" + std::to_string(i) + "\"}";
  EXPECT_EQ(parse_tools(long_list + "]").status().message(),
            "100000 tools, at most 1000 are supported");
}

TEST(ToolChoice, IsReadAndChecked) {
  const auto tools = parse_tools(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object",
           "properties": {"q": {"type": "string"}, "n": {"type": "integer"}}}}}, {"name": "g"}])");
  ASSERT_TRUE(tools.ok());
  EXPECT_EQ(parse_tool_choice("", tools.value()).value().kind, ToolChoice::Kind::automatic);
  EXPECT_EQ(parse_tool_choice(R"("none")", tools.value()).value().kind, ToolChoice::Kind::none);
  const ToolChoice one =
      parse_tool_choice(R"({"type": "function", "function": {"name": "g"}})", tools.value())
          .value();
  EXPECT_EQ(one.name, "g");
  EXPECT_THAT(parse_tool_choice(R"({"function": {"name": "h"}})", tools.value()).status().message(),
              HasSubstr("'h', which is not in tools"));
  EXPECT_THAT(parse_tool_choice("5", tools.value()).status().message(), HasSubstr("tool_choice"));
  EXPECT_THAT(parse_tools(R"([{"name": "f"}, {"name": "f"}])").status().message(),
              HasSubstr("tools[1]"));
  EXPECT_THAT(parse_tools(R"([{}])").status().message(), HasSubstr("tools[0] has no name"));
  EXPECT_THAT(answer_options(tools.value(), {}).parsed_parameters, ElementsAre("f.n"));
  EXPECT_FALSE(
      answer_options(tools.value(), {.kind = ToolChoice::Kind::none, .name = ""}).parse_calls);
}

}  // namespace
}  // namespace strata
