// Goal: composed grammars take exactly what their parts say, control tokens only where they are
// named, and what is none is refused. Method: texts and tokens by hand.
#include "runtime/grammar/composed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "runtime/grammar/constraint.h"
#include "runtime/grammar/matcher.h"

namespace strata::grammar {
namespace {

using ::testing::HasSubstr;

bool takes(const std::string& grammar, const std::string& text) {
  const auto pda = compile_composed(grammar);
  EXPECT_TRUE(pda.ok()) << pda.status().to_string();
  Matcher matcher(pda.value());
  return matcher.accept(text) && matcher.can_end();
}

// Words, and calls between them.
const std::string kCalls = R"({"markers": ["<c>"], "root": {"sequence": [{"free": ["<c>"]},
  {"repeat": {"sequence": ["<c>", {"schema": "{\"type\": \"integer\", \"minimum\": 5}"}, "</c>",
  {"free": ["<c>"]}]}}]}})";

TEST(Composed, WordsAreFreeUntilAMarker) {
  for (const char* text :
       {"", "any words é < c>", "<c>5</c>", "a<c>17</c> b <c>9</c>", "<<c>6</c>"}) {
    EXPECT_TRUE(takes(kCalls, text)) << text;
  }
  for (const char* text : {"<c>", "a<c>4</c>", "a<c>x", "<c>5</c><c>", "<c>5"}) {
    EXPECT_FALSE(takes(kCalls, text)) << text;
  }
}

TEST(Composed, BeginningsChoicesAndRepetitions) {
  const std::string begins =
      R"({"root": {"choice": ["{call}", {"free": ["#"], "begins": ["{c"]}]}})";
  for (const char* text : {"{call}", "{", "{ c", "x{c", ""})
    EXPECT_TRUE(takes(begins, text)) << text;
  for (const char* text : {"{c", "{call", "{call} ", "a#"})
    EXPECT_FALSE(takes(begins, text)) << text;
  const std::string repeated = R"({"root": {"repeat": "ab", "min": 2}})";
  EXPECT_TRUE(takes(repeated, "ababab"));
  EXPECT_FALSE(takes(repeated, "ab"));
}

// Each schema is a document of its own, also where registers count in several.
TEST(Composed, SchemasKeepTheirOwnReferencesAndCounters) {
  const auto schema = [](const std::string& text) {
    return nlohmann::json({{"schema", text}}).dump();
  };
  const std::string list = schema(R"({"type": "array", "items": {"$ref": "#/$defs/a"},
                                      "maxItems": 2, "$defs": {"a": {"const": 1}}})");
  const std::string object = schema(R"({"properties": {"k": {"type": "string", "maxLength": 1}},
      "type": "object", "required": ["k"], "additionalProperties": false})");
  const std::string grammar =
      R"({"root": {"sequence": [)" + list + "," + object + "," + list + "]}}";
  EXPECT_TRUE(takes(grammar, R"([1,1]{"k":"x"}[1])"));
  EXPECT_FALSE(takes(grammar, R"([1,1,1]{"k":"x"}[1])"));
  EXPECT_FALSE(takes(grammar, R"([1]{"k":"xy"}[1])"));
  EXPECT_FALSE(takes(grammar, R"([1]{}[1])"));
  EXPECT_FALSE(takes(grammar, R"([1]{"k":"x"}[1,1,1])"));
}

TEST(Composed, ControlTokensStandForMarkersOnly) {
  std::vector<std::string> texts = {"", "", "a", "<", "c>", "5", "</c>"};
  const auto vocabulary = std::make_shared<Vocabulary>(
      texts, std::vector<Vocabulary::ControlToken>{{0, "<c>"}, {1, "<end>"}});
  GrammarCache cache(vocabulary);
  Constraint constraint =
      cache.start({.kind = GrammarSpec::Kind::composed, .text = kCalls}).value();
  EXPECT_TRUE(constraint.mask({}).allows(0));
  EXPECT_FALSE(constraint.mask({}).allows(1));
  ASSERT_TRUE(constraint.accept(2));
  EXPECT_FALSE(constraint.accept(1));
  ASSERT_TRUE(constraint.accept(0));
  EXPECT_FALSE(constraint.mask({}).allows(0));
  EXPECT_FALSE(constraint.mask({}).allows(2));
  EXPECT_TRUE(constraint.mask({}).allows(5));
  ASSERT_TRUE(constraint.replay(std::vector<int32_t>{5, 6, 3, 4}).ok());
  EXPECT_FALSE(constraint.can_end()) << "'<c>' in plain tokens needs a call too";
  Constraint again = cache.start({.kind = GrammarSpec::Kind::composed, .text = kCalls}).value();
  EXPECT_TRUE(again.replay(std::vector<int32_t>{2, 3, 4, 5, 6, 0, 5}).ok());
  EXPECT_FALSE(again.can_end());
  Constraint other = cache.start({.kind = GrammarSpec::Kind::regex, .text = "<c>.*"}).value();
  EXPECT_FALSE(other.mask({}).allows(0)) << "no other grammar knows control tokens";
}

TEST(Composed, WhatIsNoneIsRefusedWithItsPlace) {
  const auto refusal = [](const std::string& text) {
    return std::string(compile_composed(text).status().message());
  };
  EXPECT_THAT(refusal("{"), HasSubstr("no JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("has no root"));
  EXPECT_THAT(refusal(R"({"root": 5})"), HasSubstr("#/root: is neither text nor object"));
  EXPECT_THAT(refusal(R"({"root": {"sequence": ["a", {}]}})"), HasSubstr("/sequence/1"));
  EXPECT_THAT(refusal(R"({"root": {"free": [""]}})"), HasSubstr("an empty one"));
  EXPECT_THAT(refusal(R"({"root": {"choice": []}})"), HasSubstr("matches no text"));
  EXPECT_THAT(refusal(R"({"root": {"repeat": "a", "min": 12}})"), HasSubstr("from 0 to 9"));
  EXPECT_THAT(refusal(R"({"root": {"schema": "{\"not\":{}}", "name": "tool f"}})"),
              HasSubstr("tool f: "));
  std::string deep = "\"a\"";
  for (int i = 0; i < 60; ++i) deep = R"({"choice": [)" + deep + "]}";
  EXPECT_THAT(refusal("{\"root\": " + deep + "}"), HasSubstr("nests too deeply"));
}

}  // namespace
}  // namespace strata::grammar
