// Goal: a match is a value: copied, rebuilt and carried to another space it goes on alike; and it
// says what may come.
#include "runtime/grammar/matcher.h"

#include <gtest/gtest.h>

#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

constexpr std::string_view kSchema = R"({"type":"object","properties":{
    "name":{"type":"string","minLength":2,"maxLength":40},
    "tags":{"type":"array","items":{"enum":["x","y"]},"minItems":1,"maxItems":30}},
    "required":["name","tags"],"additionalProperties":{"type":"integer"}})";
constexpr std::string_view kDocument =
    R"({"n":1,"tags":["x","y","x"],"name":"Zürich \"ZH\"","other":22})";

TEST(Matcher, CopiesGoOnApart) {
  Matcher matcher(test::schema(kSchema));
  for (size_t cut = 0; cut <= kDocument.size(); ++cut) {
    Matcher at(matcher.shared_space());
    ASSERT_TRUE(at.accept(kDocument.substr(0, cut)));
    Matcher copy = at;
    EXPECT_FALSE(copy.accept("\x01"));
    EXPECT_EQ(copy.situation(), at.situation()) << "a refusal changes nothing";
    EXPECT_TRUE(copy.accept(kDocument.substr(cut))) << cut;
    EXPECT_TRUE(copy.can_end());
    EXPECT_EQ(at.can_end(), cut == kDocument.size());
  }
}

TEST(Matcher, GoesOnInANewSpace) {
  const auto pda = test::schema(kSchema);
  for (size_t cut = 0; cut < kDocument.size(); ++cut) {
    Matcher matcher(pda);
    ASSERT_TRUE(matcher.accept(kDocument.substr(0, cut)));
    const std::string expected = matcher.expected();
    matcher.move_to(std::make_shared<StateSpace>(pda));
    EXPECT_EQ(matcher.expected(), expected) << cut;
    EXPECT_TRUE(matcher.accept(kDocument.substr(cut))) << cut;
    EXPECT_TRUE(matcher.can_end());
  }
}

TEST(Matcher, SaysWhatMayCome) {
  Matcher matcher(test::schema(R"({"type":"object","properties":{"a":{"const":1}},"required":["a"],
                                   "additionalProperties":false})",
                               Strictness::generation));
  EXPECT_EQ(matcher.expected(), "'{'");
  ASSERT_TRUE(matcher.accept("{"));
  EXPECT_EQ(matcher.expected(), "a line end, a space or '\"'");
  ASSERT_TRUE(matcher.accept("\"a\":1}"));
  EXPECT_EQ(matcher.expected(), "the end");
  EXPECT_FALSE(matcher.accept(" "));
}

TEST(Matcher, ForcedBytesRunToTheNextChoice) {
  Matcher matcher(test::gbnf("root ::= \"{\\\"name\\\": \" (\"1\" | \"2\") \"}\""));
  EXPECT_EQ(matcher.forced_bytes(100), "{\"name\": ");
  EXPECT_EQ(matcher.forced_bytes(3), "{\"n");
  ASSERT_TRUE(matcher.accept("{\"name\": "));
  EXPECT_EQ(matcher.forced_bytes(100), "");
  ASSERT_TRUE(matcher.accept("2"));
  EXPECT_EQ(matcher.forced_bytes(100), "}");
  ASSERT_TRUE(matcher.accept("}"));
  EXPECT_EQ(matcher.forced_bytes(100), "") << "ending is a choice too";
}

}  // namespace
}  // namespace strata::grammar
