// Goal: each keyword, each combination that takes care, and a clear refusal of the rest.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>

#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

using test::schema;
using test::schema_error;
using test::wrong_verdict;
using ::testing::HasSubstr;

TEST(Schema, MembersComeInAnyOrderAndOnce) {
  const auto pda = schema(R"({"type":"object","properties":{"a":{"type":"integer"},
      "b":{"type":"string"},"ab":{"type":"null"}},"required":["a"],"additionalProperties":false})");
  EXPECT_EQ(wrong_verdict(pda,
                          {R"({"a":1})", R"({"b":"x","a":1})", R"({"ab":null,"b":"","a":0})",
                           "{ \"a\" : 1 ,\n\t\"ab\":null }", R"({"\u0061":1})"},
                          {R"({})", R"({"b":"x"})", R"({"a":1,"a":2})", R"({"a":1,"\u0061":2})",
                           R"({"a":1,})", R"({"a":1,"c":1})", R"({"a":1 "b":""})", R"({,"a":1})"}),
            "");
}

TEST(Schema, NamesThatAreNotKnownBeforeComeOnceToo) {
  const auto pda = schema(R"({"type":"object","additionalProperties":{"type":"integer"}})");
  EXPECT_EQ(wrong_verdict(pda, {R"({})", R"({"x":1,"y":1})", R"({"x":1,"xx":1})"},
                          {R"({"x":1,"x":1})", R"({"x":1,"\u0078":1})", R"({"x":"1"})"}),
            "");
  const auto any = schema("{}");
  EXPECT_EQ(wrong_verdict(any, {R"({"a":{"a":1},"b":[{"a":2}]})", R"([{"a":1},{"a":1}])"},
                          {R"({"a":{"b":1,"b":2}})", R"([{"a":1,"a":1}])"}),
            "");
}

TEST(Schema, NoNameIsBegunThatCannotEnd) {
  // After both members the comma has nothing to lead to; after "na" only "nb" is left.
  const auto pda = schema(R"({"type":"object","properties":{"na":{"type":"integer"},
      "nb":{"type":"integer"}},"additionalProperties":false})");
  EXPECT_FALSE(test::accepts(pda, R"({"na":1,"nb":2,)"));
  const auto expected = [&](std::string_view text) { return test::accepts(pda, text); };
  EXPECT_TRUE(expected(R"({"na":1,"nb":2})"));
  EXPECT_FALSE(expected(R"({"na":1,"na":2})"));
}

TEST(Schema, PropertyCounts) {
  const auto pda = schema(R"({"type":"object","minProperties":1,"maxProperties":2,
      "required":["a"],"properties":{"a":true},"additionalProperties":true})");
  EXPECT_EQ(wrong_verdict(pda, {R"({"a":1})", R"({"x":1,"a":2})"},
                          {R"({})", R"({"x":1})", R"({"x":1,"y":2})", R"({"x":1,"y":2,"a":3})"}),
            "");
}

TEST(Schema, PatternAndAdditionalMembers) {
  const auto pda = schema(R"({"type":"object","properties":{"x1":{"maximum":9}},
      "patternProperties":{"^x":{"type":"integer"},"1$":{"minimum":5}},
      "additionalProperties":{"type":"string"}})");
  EXPECT_EQ(
      wrong_verdict(pda,
                    {R"({"x1":7})", R"({"x2":100})", R"({"y":"s"})", R"({"y1":6})",
                     R"({"x3":1,"q":""})", R"({"y1":"text"})"},
                    {R"({"x1":10})", R"({"x1":4})", R"({"x2":"s"})", R"({"y":1})", R"({"y1":4})"}),
      "");
}

TEST(Schema, DependentRequiredAndPropertyNames) {
  const auto pda = schema(R"({"type":"object","dependentRequired":{"a":["b"],"b":["c"]},
      "propertyNames":{"maxLength":1}})");
  EXPECT_EQ(
      wrong_verdict(pda, {R"({})", R"({"c":1})", R"({"a":1,"c":1,"b":1})", R"({"b":1,"c":2})"},
                    {R"({"a":1})", R"({"a":1,"b":1})", R"({"b":1})", R"({"dd":1})"}),
      "");
}

TEST(Schema, ArraysOfPrefixAndRest) {
  const auto pda = schema(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],
      "items":{"type":"null"},"minItems":1,"maxItems":4})");
  EXPECT_EQ(
      wrong_verdict(pda, {"[1]", "[1,\"x\"]", "[1, \"x\", null]", "[1,\"x\",null,null]"},
                    {"[]", "[\"x\"]", "[1,2]", "[1,\"x\",1]", "[1,\"x\",null,null,null]", "[1,]"}),
      "");
  EXPECT_EQ(wrong_verdict(schema(R"({"prefixItems":[{"type":"integer"}],"items":false})"),
                          {"[]", "[1]", "\"other types are free\""}, {"[1,1]", "[null]"}),
            "");
  EXPECT_EQ(wrong_verdict(schema(R"({"type":"array","minItems":3,"items":{"const":0}})"),
                          {"[0,0,0]", "[0,0,0,0,0]"}, {"[0,0]", "[]"}),
            "");
}

TEST(Schema, AllOfMeetsMemberByMember) {
  const auto pda = schema(R"({"allOf":[
      {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
      {"properties":{"a":{"minimum":3},"b":{"type":"string"}},"required":["b"]}]})");
  EXPECT_EQ(wrong_verdict(pda, {R"({"a":3,"b":""})", R"({"b":"","a":4,"c":[]})"},
                          {R"({"a":2,"b":""})", R"({"a":3})", R"({"a":"3","b":""})", "1"}),
            "");
}

TEST(Schema, OneOfIsExact) {
  EXPECT_EQ(wrong_verdict(schema(R"({"oneOf":[{"type":"integer","multipleOf":2},
                                              {"type":"integer","multipleOf":3}]})"),
                          {"2", "3", "-9", "4"}, {"6", "0", "12", "5", "\"2\""}),
            "");
  EXPECT_EQ(wrong_verdict(schema(R"({"oneOf":[{"type":"object","required":["k"],
                  "properties":{"k":{"const":"a"},"v":{"type":"integer"}}},
                 {"type":"object","required":["k"],"properties":{"k":{"const":"b"}}}]})"),
                          {R"({"k":"a","v":1})", R"({"v":"x","k":"b"})", R"({"v":1,"k":"a"})"},
                          {R"({"k":"a","v":"x"})", R"({"v":"x","k":"a"})", R"({"k":"c"})"}),
            "");
}

TEST(Schema, ConstsOfEveryKind) {
  EXPECT_EQ(
      wrong_verdict(schema(R"({"const":{"a":[1,{"b":null}],"c":"\n"}})"),
                    {R"({"c":"\n","a":[1,{"b":null}]})", R"({"c":"\u000a","a":[1.0,{"b":null}]})"},
                    {R"({"a":[1,{"b":null}]})", R"({"a":[1],"c":"\n"})"}),
      "");
  EXPECT_EQ(wrong_verdict(schema(R"({"enum":[1.5,"x",null,[],{}]})"),
                          {"1.5", "1.50", "\"x\"", "null", "[ ]", "{}"},
                          {"1", "15", "\"y\"", "[1]", "true", "{\"a\":1}"}),
            "");
}

TEST(Schema, RecursionByReference) {
  const auto pda = schema(R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object",
      "properties":{"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},
      "required":["next"],"additionalProperties":false}}})");
  EXPECT_EQ(wrong_verdict(pda, {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
                          {R"({})", R"({"next":{}})", R"({"next":{"next":null})"}),
            "");
  EXPECT_EQ(wrong_verdict(schema(R"({"$id":"https://a.example/t","type":"array",
                                     "items":{"$ref":"https://a.example/t#"}})"),
                          {"[]", "[[],[[]]]"}, {"[1]", "["}),
            "");
  EXPECT_EQ(wrong_verdict(schema(R"({"$ref":"#/$defs/a~1b%25","$defs":{"a/b%":{"$anchor":"x",
                  "type":["null","array"],"items":{"$ref":"#x"}}}})"),
                          {"null", "[null,[]]"}, {"1"}),
            "");
}

TEST(Schema, DeepDocumentsAreNoRecursion) {
  const auto pda = schema(R"({"type":"array","items":{"$ref":"#"}})");
  const std::string deep = std::string(5000, '[') + std::string(5000, ']');
  EXPECT_TRUE(test::accepts(pda, deep));
  EXPECT_FALSE(test::accepts(pda, std::string(200000, '[')));
}

TEST(Schema, StringsCountCharactersHoweverTheyAreWritten) {
  const auto pda = schema(R"({"type":"string","minLength":2,"maxLength":3})");
  EXPECT_EQ(
      wrong_verdict(pda,
                    {R"("ab")", R"("éüß")", R"("\n\"")", R"("\ud83d\ude42a")", R"("🙂🙂🙂")"},
                    {R"("a")", R"("abcd")", R"("\ud83d\ude42")", R"("🙂🙂🙂🙂")",
                     R"("\ud83da")", R"("\ude42ab")", "\"a\nb\"", "\"a\xff\"", R"("ab\x")"}),
      "");
  EXPECT_EQ(wrong_verdict(
                schema(R"({"type":"string","minLength":3,"pattern":"^a*$","maxLength":4})"),
                {R"("aaa")", R"("aaaa")", R"("aa\u0061")"}, {R"("aa")", R"("aaaaa")", R"("aab")"}),
            "");
}

TEST(Schema, FormatsAreChecked) {
  const auto format = [](std::string_view name) {
    return schema(fmt::format(R"({{"type":"string","format":"{}"}})", name));
  };
  EXPECT_EQ(
      wrong_verdict(format("date-time"),
                    {R"("2024-02-29T23:59:59Z")", R"("2000-02-29T00:00:00.123+01:30")"},
                    {R"("2023-02-29T00:00:00Z")", R"("1900-02-29T00:00:00Z")", R"("2024-01-01")",
                     R"("2024-01-01T24:00:00Z")", R"("2024-01-01T00:00:00")"}),
      "");
  EXPECT_EQ(wrong_verdict(format("hostname"), {R"("a.example")", R"("x-1")"},
                          {R"("-a")", R"("a..b")", R"("")"}),
            "");
  EXPECT_EQ(wrong_verdict(format("email"), {R"("a.b@c.de")"}, {R"("a")", R"("@c.de")", R"("a@")"}),
            "");
  EXPECT_EQ(wrong_verdict(format("uri"),
                          {R"("https://a.b/c?d=e#f")", R"("urn:x:y")", R"("http://[::1]:80/")"},
                          {R"("//a.b")", R"("a b")", R"("")"}),
            "");
  EXPECT_EQ(
      wrong_verdict(format("ipv6"),
                    {R"("::")", R"("1::8")", R"("1:2:3:4:5:6:1.2.3.4")", R"("1:2:3:4:5:6:7::")"},
                    {R"("1:2:3:4:5:6:7:8:9")", R"("1::2::3")", R"("::1.2.3")"}),
      "");
  EXPECT_EQ(
      wrong_verdict(format("uuid"), {R"("123e4567-e89b-12d3-a456-426614174000")"}, {R"("123")"}),
      "");
  EXPECT_THAT(schema_error(R"({"type":"string","format":"idn-email"})"),
              HasSubstr("'idn-email' is not supported"));
}

TEST(Schema, AnnotationsDoNotLeak) {
  const std::string plain = R"({"type":"object","properties":{"a":{"type":"boolean"}}})";
  const std::string text(5000, 'x');
  for (const std::string& description :
       {std::string("quote \\\" brace } { \\\\ \\n \\u0000"), std::string("\U0001F642 é"), text,
        std::string("::= | root [a-z]* \\\"")}) {
    const std::string annotated = fmt::format(
        R"({{"title":"{0}","description":"{0}","default":{{"{0}":1}},"examples":["{0}"],
            "type":"object","properties":{{"a":{{"type":"boolean","description":"{0}"}}}}}})",
        description);
    EXPECT_EQ(schema(annotated)->states.size(), schema(plain)->states.size()) << description;
  }
}

TEST(Schema, WhatIsNotSupportedIsNamedWithItsPlace) {
  EXPECT_EQ(schema_error(R"({"properties":{"a/b":{"not":{}}}})"),
            "schema at #/properties/a~1b: the keyword 'not' is not supported");
  for (const char* keyword : {"if", "contains", "unevaluatedProperties", "dependentSchemas",
                              "$dynamicRef", "minContains", "nullable", "unknownWord"}) {
    EXPECT_THAT(schema_error(fmt::format(R"({{"{}":true}})", keyword)), HasSubstr(keyword));
  }
  EXPECT_THAT(schema_error(R"({"type":"array","uniqueItems":true})"), HasSubstr("uniqueItems"));
  EXPECT_THAT(schema_error(R"({"$ref":"https://other.example/s"})"),
              HasSubstr("leads out of the schema"));
  EXPECT_THAT(schema_error(R"({"$ref":"#/nowhere"})"), HasSubstr("leads to nothing"));
  EXPECT_THAT(schema_error(R"({"oneOf":[{"type":"object"},{"type":"object"}]})"),
              HasSubstr("oneOf: an object may fit both branch 0 and branch 1"));
  EXPECT_EQ(schema_error(R"({"x-vendor":{"a":1},"type":"null"})"), "");
}

TEST(Schema, WrongValuesOfKeywordsAreErrors) {
  EXPECT_THAT(schema_error(""), HasSubstr("schema: no JSON"));
  EXPECT_THAT(schema_error("[]"), HasSubstr("a schema is an object, true or false"));
  EXPECT_THAT(schema_error(R"({"type":"text"})"), HasSubstr("schema at #: type: null, boolean"));
  EXPECT_THAT(schema_error(R"({"minLength":-1})"), HasSubstr("minLength: a whole number"));
  EXPECT_THAT(schema_error(R"({"minimum":"1"})"), HasSubstr("minimum: a number"));
  EXPECT_THAT(schema_error(R"({"items":[{}]})"), HasSubstr("use prefixItems"));
  EXPECT_THAT(schema_error(R"({"pattern":"("})"),
              HasSubstr("schema at #: pattern: regular expression"));
  EXPECT_THAT(schema_error(R"({"type":"null","type":"null"})"), HasSubstr("'type' comes twice"));
  EXPECT_THAT(schema_error("{\"a\":" + std::string(300, '[')), HasSubstr("deeper than 200 levels"));
  EXPECT_THAT(schema_error(R"({"minimum":1e400})"), HasSubstr("no JSON"));
}

TEST(Schema, ContradictionsAndCirclesAreErrors) {
  EXPECT_THAT(schema_error("false"), HasSubstr("matches no document"));
  EXPECT_THAT(schema_error(R"({"type":"integer","minimum":3,"maximum":2})"),
              HasSubstr("matches no document"));
  EXPECT_THAT(schema_error(R"({"$ref":"#"})"), HasSubstr("refers to itself"));
  EXPECT_THAT(schema_error(R"({"allOf":[{"anyOf":[{"$ref":"#"}]}]})"),
              HasSubstr("refers to itself"));
  EXPECT_THAT(schema_error(R"({"oneOf":[{"$ref":"#"},{"type":"null"}]})"),
              HasSubstr("refers to itself"));
  // Each needs another inside itself, without end.
  EXPECT_THAT(schema_error(R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})"),
              HasSubstr("matches no document"));
  // One of two ways has an end: the other is not offered.
  EXPECT_EQ(wrong_verdict(schema(R"({"anyOf":[{"type":"null"},{"type":"array","minItems":1,
                                     "items":{"allOf":[{"type":"null"},{"type":"string"}]}}]})"),
                          {"null"}, {"[", "[]"}),
            "");
}

// What could make compilation run away ends soon, with an answer or an error.
TEST(Schema, HostileSchemasEndSoon) {
  std::string any_of = R"({"allOf":[)";
  for (int i = 0; i < 12; ++i)
    any_of += R"({"anyOf":[{"minimum":1},{"minLength":2},{"maxLength":3}]},)";
  any_of += "{}]}";
  std::string many = R"({"enum":[)";
  for (int i = 0; i < 20000; ++i) many += fmt::format("\"v{}\",", i);
  many += "1]}";
  const std::string patterns = [] {
    std::string text = R"({"type":"object","patternProperties":{)";
    for (int i = 0; i < 30; ++i) text += fmt::format(R"("a{}.*b{}":{{"maxLength":{}}},)", i, i, i);
    return text + R"("z":true}})";
  }();
  for (const std::string& text :
       {any_of, many, patterns, std::string(R"({"type":"string","pattern":"(a|aa){5000}b"})"),
        std::string(R"({"type":"string","pattern":"((a{1000}){1000}){1000}"})"),
        std::string(R"({"type":"string","pattern":"[ab]*a[ab]{40}"})"),
        std::string(R"({"type":"integer","multipleOf":99991,"minimum":1,"maximum":1e300})"),
        std::string(R"({"type":"string","minLength":9000000})"),
        std::string(R"({"type":"array","minItems":9000000,"maxItems":9999999})")}) {
    const std::clock_t begin = std::clock();  // of this process: others may be busy
    const auto pda = compile_schema(text, Strictness::generation);
    EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 10.0)
        << text.substr(0, 80);
    EXPECT_NE(pda.ok(), !pda.status().message().empty());
  }
}

TEST(Schema, GenerationBoundsWhatCheckingDoesNot) {
  const auto free = schema(R"({"type":"array","items":{"type":"integer"}})");
  const auto bound =
      schema(R"({"type":"array","items":{"type":"integer"}})", Strictness::generation);
  EXPECT_EQ(
      wrong_verdict(free, {" [ 1 ]\n", "[\n\n\n1]", "[1.0]", "[1e2]", "[-0]"}, {"[1.5]", "[1e-2]"}),
      "");
  EXPECT_EQ(
      wrong_verdict(bound, {"[ 1 ]", "[\n  1,\n  2\n]", "[]"},
                    {" []", "[] ", "[\n\n\n1]", "[1.0]", "[1e2]", "[  1]", "[1234567890123456]"}),
      "");
}

}  // namespace
}  // namespace strata::grammar
