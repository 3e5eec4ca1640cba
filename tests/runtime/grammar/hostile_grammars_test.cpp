// Goal: no grammar, whatever it is, takes long to be compiled or refused. Method: inputs that made
// a naive compiler slow, each with a limit in processor time that is far above what it takes and
// far below what it took; the machine may be busy, so the clock on the wall says nothing.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <string>

#include "runtime/grammar/constraint.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/matcher.h"

namespace strata::grammar {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlowness = 20;
#else
constexpr double kSlowness = 1;
#endif

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Compiles within the limit, whatever the verdict is.
Result<std::shared_ptr<const Pda>> compile_within(double seconds, GrammarSpec::Kind kind,
                                                  std::string text) {
  const double begin = processor_seconds();
  Result<std::shared_ptr<const Pda>> pda =
      compile_grammar({.kind = kind, .text = std::move(text)}, Strictness::generation);
  EXPECT_LT(processor_seconds() - begin, seconds * kSlowness);
  return pda;
}

Result<std::shared_ptr<const Pda>> schema_within(double seconds, std::string text) {
  return compile_within(seconds, GrammarSpec::Kind::json_schema, std::move(text));
}

std::string repeated(size_t count, const std::function<std::string(size_t)>& part,
                     std::string_view between = "") {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += (i > 0 ? std::string(between) : "") + part(i);
  return text;
}

TEST(HostileGrammars, ClassesOfManyRangesAreLinear) {
  // Backwards, so that each range would be put before all others.
  constexpr size_t kCount = 40000;
  const auto one = [](size_t i) { return fmt::format("\\U{:08X}", 0x10000 + 2 * (kCount - i)); };
  const auto pda =
      compile_within(2, GrammarSpec::Kind::gbnf, "root ::= [" + repeated(kCount, one) + "]");
  EXPECT_TRUE(pda.ok()) << pda.status().to_string();
}

TEST(HostileGrammars, CategoriesAreLookedUpOnce) {
  const std::string some = repeated(200, [](size_t) { return "\\p{L}"; });
  EXPECT_TRUE(compile_within(1, GrammarSpec::Kind::regex, some).ok());
  const std::string many = repeated(80000, [](size_t) { return "\\p{L}"; });
  const auto refused = compile_within(2, GrammarSpec::Kind::regex, many);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("too much work"), std::string::npos);
  EXPECT_FALSE(compile_within(2, GrammarSpec::Kind::regex, "\\p{L}{100000}").ok());
  EXPECT_FALSE(compile_within(2, GrammarSpec::Kind::regex, "(?:\\p{L}|\\p{N}){90000,}").ok());
}

TEST(HostileGrammars, RulesThatWaitForEachOtherAreLookedAtOnce) {
  // Each is empty if the next one is, which a pass in the order of the rules learns one by one.
  const size_t count = 15000;
  const auto chain = [](size_t i) {
    return i + 1 == count ? fmt::format("r{} ::= \"x\"?\n", i)
                          : fmt::format("r{} ::= r{} r{}\n", i, i + 1, i + 1);
  };
  EXPECT_TRUE(
      compile_within(3, GrammarSpec::Kind::gbnf, "root ::= r0\n" + repeated(count, chain)).ok());
}

TEST(HostileGrammars, ValuesThatWaitForEachOtherAreLookedAtOnce) {
  const size_t count = 4000;
  const std::string defs = repeated(
      count,
      [](size_t i) {
        return i == 0 ? std::string(R"("d0":{"type":"null"})")
                      : fmt::format(R"("d{}":{{"type":"array","items":{{"$ref":"#/$defs/d{}"}},)"
                                    R"("minItems":1}})",
                                    i, i - 1);
      },
      ",");
  EXPECT_TRUE(
      schema_within(3, fmt::format(R"({{"$ref":"#/$defs/d{}","$defs":{{{}}}}})", count - 1, defs))
          .ok());
}

TEST(HostileGrammars, OnePatternInManyPlacesIsCompiledOnce) {
  const std::string members = repeated(
      1500, [](size_t i) { return fmt::format(R"("p{}":{{"type":"string","format":"uri"}})", i); },
      ",");
  const auto pda = schema_within(2, R"({"type":"object","properties":{)" + members + "}}");
  EXPECT_TRUE(pda.ok()) << pda.status().to_string();
}

TEST(HostileGrammars, AnchorsAndMembersAreFoundWithoutASearch) {
  const size_t count = 5000;
  const std::string defs = repeated(
      count,
      [](size_t i) { return fmt::format(R"("d{}":{{"$anchor":"a{}","type":"null"}})", i, i); },
      ",");
  for (const char* reference : {"#a", "#/$defs/d"}) {
    const std::string items = repeated(
        count, [&](size_t i) { return fmt::format(R"({{"$ref":"{}{}"}})", reference, i); }, ",");
    const auto pda = schema_within(2, fmt::format(R"({{"type":"array","prefixItems":[{}],)"
                                                  R"("items":false,"$defs":{{{}}}}})",
                                                  items, defs));
    EXPECT_TRUE(pda.ok()) << pda.status().to_string();
  }
}

TEST(HostileGrammars, AlternativesInsideAlternativesAreCounted) {
  const std::string any = R"({"anyOf":[{"minimum":1},{"minimum":2},{"minimum":3},{"minimum":4}]})";
  const std::string schema = R"({"allOf":[)" +
                             repeated(
                                 30, [&any](size_t) { return any; }, ",") +
                             "]}";
  const auto pda = schema_within(2, schema);
  ASSERT_FALSE(pda.ok());
  EXPECT_NE(pda.status().message().find("alternatives"), std::string::npos);
}

// Members that ask for members that ask for members: what must come is known beforehand.
TEST(HostileGrammars, ChainsOfDependentMembersAreClosedOnce) {
  const size_t count = 600;
  const std::string chain = repeated(
      count - 1, [](size_t i) { return fmt::format(R"("k{}":["k{}"])", i, i + 1); }, ",");
  const auto pda = schema_within(
      3, fmt::format(R"({{"type":"object","dependentRequired":{{{}}},"maxProperties":{},)"
                     R"("additionalProperties":{{"type":"null"}}}})",
                     chain, count));
  ASSERT_TRUE(pda.ok()) << pda.status().to_string();
  const double begin = processor_seconds();
  Matcher matcher(*pda);
  EXPECT_TRUE(matcher.accept(R"({"k598":null,"k599":null,"x":null})"));
  EXPECT_LT(processor_seconds() - begin, kSlowness);
  EXPECT_TRUE(matcher.can_end());
}

TEST(HostileGrammars, WhatIsTooAmbiguousToBeginSaysSo) {
  const size_t count = 3000;
  const std::string grammar = "root ::= " +
                              repeated(
                                  count, [](size_t i) { return fmt::format("r{}", i); }, " | ") +
                              "\n" + repeated(count, [](size_t i) {
                                return fmt::format("r{} ::= \"a\" [b-z]{{{}}}\n", i, i % 9);
                              });
  const GrammarSpec spec{.kind = GrammarSpec::Kind::gbnf, .text = grammar};
  const auto pda = compile_within(3, spec.kind, grammar);
  ASSERT_TRUE(pda.ok()) << pda.status().to_string();
  Matcher matcher(*pda);
  EXPECT_FALSE(matcher.accept("a"));
  EXPECT_NE(matcher.failure().message().find("ambiguous"), std::string::npos);
  GrammarCache cache(std::make_shared<Vocabulary>(std::vector<std::string>{"a"}));
  const Result<Constraint> constraint = cache.start(spec);
  ASSERT_FALSE(constraint.ok());
  EXPECT_EQ(constraint.status().code(), StatusCode::resource_exhausted);
}

}  // namespace
}  // namespace strata::grammar
