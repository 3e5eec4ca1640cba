// Goal: whatever a tool grammar lets a model write, the family's parser reads as words and calls of
// known tools whose arguments fit. Method: the templates of real models; random walks over tokens
// of one byte and the family's markers, judged by the parser and by the schemas' own automata.
#include "runtime/text/answer/tool_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "runtime/grammar/constraint.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"
#include "tests/support/parsed_answer.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"unit": {"type": "string", "enum": ["C", "F"]},
                   "days": {"$ref": "#/$defs/days"}},
    "required": ["unit", "days"], "additionalProperties": false,
    "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 7}}}}},
  {"type": "function", "function": {"name": "stop", "parameters": {"type": "object",
    "properties": {}, "additionalProperties": false}}}])";

std::vector<std::pair<std::string, ToolFormat>> formats() {
  std::vector<std::pair<std::string, ToolFormat>> all;
  for (const auto& entry :
       std::filesystem::directory_iterator(STRATA_TEST_DATA "/templates/chat")) {
    if (entry.path().extension() != ".jinja") continue;
    std::ifstream file(entry.path());
    std::stringstream source;
    source << file.rdbuf();
    all.emplace_back(entry.path().stem().string(), tool_format_of(source.str(), true));
  }
  all.emplace_back("xml", tool_format_of("<tool_call><function=", true));
  all.emplace_back("mistral with names", tool_format_of("[TOOL_CALLS][ARGS]", true));
  all.emplace_back("deepseek with fences", tool_format_of("<｜tool▁calls▁begin｜>```json", true));
  all.emplace_back("bare", tool_format_of("", true));
  return all;
}

// One byte each, then the markers as control tokens.
std::shared_ptr<const grammar::Vocabulary> vocabulary_of(const ToolFormat& format) {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  std::vector<grammar::Vocabulary::ControlToken> controls;
  for (const std::string& marker : format.markers()) {
    controls.push_back({static_cast<int32_t>(texts.size()), marker});
    texts.emplace_back();
  }
  texts.emplace_back();  // the end
  return std::make_shared<grammar::Vocabulary>(texts, controls);
}

// A random answer; empty if it did not end. Markers are as likely as everything else together.
std::string walk(const ToolFormat& format, const std::string& grammar, uint32_t seed) {
  const auto vocabulary = vocabulary_of(format);
  const int32_t end = vocabulary->size() - 1;
  const std::vector<int32_t> ends = {end};
  grammar::GrammarCache cache(vocabulary);
  auto constraint = cache.start({.kind = GrammarSpec::Kind::composed, .text = grammar});
  EXPECT_TRUE(constraint.ok()) << constraint.status().to_string();
  if (!constraint.ok()) return {};
  std::mt19937 random(seed);
  std::string text;
  for (int step = 0; step < 3000; ++step) {
    const TokenMask& mask = constraint->mask(ends);
    std::vector<int32_t> markers;
    std::vector<int32_t> all;
    for (int32_t id = 0; id <= end; ++id) {
      if (!mask.allows(id)) continue;
      all.push_back(id);
      if (id >= 256) markers.push_back(id);
    }
    if (all.empty()) return {};
    const std::vector<int32_t>& from = markers.empty() || random() % 2 == 0 ? all : markers;
    const int32_t id = from[random() % from.size()];
    if (id == end) return text;
    EXPECT_TRUE(constraint->accept(id));
    for (const auto& control : vocabulary->controls()) {
      if (control.id == id) text += control.text;
    }
    text += vocabulary->text(id);
  }
  return {};
}

void expect_valid(const std::vector<Tool>& tools, const test::ParsedAnswer& answer,
                  const std::string& context) {
  for (const auto& [name, arguments] : answer.calls) {
    const auto tool = std::find_if(tools.begin(), tools.end(),
                                   [&](const Tool& other) { return other.name == name; });
    ASSERT_NE(tool, tools.end()) << name << context;
    grammar::Matcher matcher(
        grammar::compile_schema(tool->parameters, grammar::Strictness::checking).value());
    EXPECT_TRUE(matcher.accept(arguments) && matcher.can_end()) << arguments << context;
  }
}

TEST(ToolGrammar, RequiredAnswersAreCallsInEveryFamily) {
  const std::vector<Tool> tools = parse_tools(kTools).value();
  for (const auto& [family, format] : formats()) {
    for (const bool one : {false, true}) {
      ToolChoice choice{.kind = one ? ToolChoice::Kind::one : ToolChoice::Kind::required,
                        .name = one ? "get_weather" : ""};
      const std::string grammar = tool_grammar(format, tools, choice, false);
      int ended = 0;
      for (uint32_t seed = 0; seed < 12; ++seed) {
        const std::string text = walk(format, grammar, seed);
        if (text.empty()) continue;
        ++ended;
        const std::string context = "\n" + family + "\n" + text;
        const auto answer = test::parse_answer(format, answer_options(tools, choice), text);
        EXPECT_FALSE(answer.calls.empty()) << context;
        EXPECT_EQ(answer.content, "") << context;
        if (one) {
          ASSERT_EQ(answer.calls.size(), 1U) << context;
          EXPECT_EQ(answer.calls[0].first, "get_weather") << context;
        }
        expect_valid(tools, answer, context);
      }
      EXPECT_GE(ended, 3) << family;
    }
  }
}

TEST(ToolGrammar, CallsWithinWordsAreHeldToTheirSchemas) {
  const std::vector<Tool> tools = parse_tools(kTools).value();
  size_t calls = 0;
  for (const auto& [family, format] : formats()) {
    const std::string grammar = tool_grammar(format, tools, {}, false);
    for (uint32_t seed = 0; seed < 12; ++seed) {
      const std::string text = walk(format, grammar, seed);
      const auto answer = test::parse_answer(format, answer_options(tools, {}), text);
      calls += answer.calls.size();
      expect_valid(tools, answer, "\n" + family + "\n" + text);
    }
  }
  EXPECT_GE(calls, 20U);
}

TEST(ToolGrammar, WordsAreFree) {
  const std::vector<Tool> tools = parse_tools(kTools).value();
  for (const auto& [family, format] : formats()) {
    grammar::Matcher matcher(
        grammar::compile_grammar(
            {.kind = GrammarSpec::Kind::composed, .text = tool_grammar(format, tools, {}, false)},
            grammar::Strictness::generation)
            .value());
    const bool channels = format.syntax == CallSyntax::channels;
    const std::string text = std::string(channels ? "<|channel|>final<|message|>" : "") +
                             "Hello {\"name\": \"stop\"} é <b>\n";
    EXPECT_TRUE(matcher.accept(text) && matcher.can_end()) << family;
  }
}

TEST(ToolGrammar, ReasoningComesBeforeACall) {
  const std::vector<Tool> tools = parse_tools(kTools).value();
  const ToolFormat format = tool_format_of("<tool_call><think></think>", true);
  const ToolChoice required{.kind = ToolChoice::Kind::required, .name = ""};
  const std::string call = "<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  const auto takes = [&](const ToolChoice& choice, bool open, const std::string& text) {
    grammar::Matcher matcher(
        grammar::compile_grammar({.kind = GrammarSpec::Kind::composed,
                                  .text = tool_grammar(format, tools, choice, open)},
                                 grammar::Strictness::generation)
            .value());
    return matcher.accept(text) && matcher.can_end();
  };
  EXPECT_TRUE(takes(required, false, call));
  EXPECT_TRUE(takes(required, false, "<think>\nhm <tool_call>\n</think>\n\n" + call));
  EXPECT_FALSE(takes(required, false, "<think>hm"));
  EXPECT_FALSE(takes(required, false, "words"));
  EXPECT_TRUE(takes(required, true, "hm\n</think>\n\n" + call + "\n" + call));
  EXPECT_FALSE(takes(required, true, call)) << "inside of reasoning that is no call";
  EXPECT_TRUE(takes({}, true, "hm"));
  EXPECT_TRUE(takes({}, true, "hm</think>words" + call));
  EXPECT_FALSE(takes({}, true, "hm</think>words<tool_call>x"));
}

TEST(ToolGrammar, IsNoneWithoutToolsAndNamesTheToolInErrors) {
  const ToolFormat format = tool_format_of("<tool_call>", true);
  EXPECT_EQ(tool_grammar(format, {}, {}, false), "");
  const std::vector<Tool> tools = parse_tools(kTools).value();
  EXPECT_EQ(tool_grammar(format, tools, {.kind = ToolChoice::Kind::none, .name = ""}, false), "");
  const std::vector<Tool> bad =
      parse_tools(R"([{"name": "f", "parameters": {"type": "object", "not": {}}}])").value();
  const auto refused = grammar::compile_grammar(
      {.kind = GrammarSpec::Kind::composed, .text = tool_grammar(format, bad, {}, false)},
      grammar::Strictness::generation);
  EXPECT_THAT(refused.status().message(), HasSubstr("tool f: schema at #: the keyword 'not'"));
}

}  // namespace
}  // namespace strata
