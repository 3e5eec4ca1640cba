// Goal: documents are judged as JSON Schema says. Method: the fixtures, on which another engine
// agrees, and 500 random schemas whose documents the Python package jsonschema has judged
// (make_schema_vectors.py). What generation takes must be a part of what checking takes.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/grammar/matcher.h"
#include "tests/runtime/grammar/grammar_support.h"

namespace strata::grammar {
namespace {

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return nlohmann::json::parse(file);
}

void check_case(const std::shared_ptr<const Pda>& pda, const nlohmann::json& vector) {
  for (const auto& text : vector["accepted"]) {
    EXPECT_TRUE(test::accepts(pda, text.get<std::string>())) << text << "\nof " << vector.dump();
  }
  for (const auto& text : vector["rejected"]) {
    EXPECT_FALSE(test::accepts(pda, text.get<std::string>())) << text << "\nof " << vector.dump();
  }
}

TEST(SchemaVectors, FixturesInBothSpellings) {
  const nlohmann::json vectors = read_json(STRATA_TEST_DATA "/grammar/json_schemas.json");
  ASSERT_EQ(vectors.size(), 16U);
  for (const auto& vector : vectors) {
    const std::string text = vector["schema"].dump();
    check_case(test::schema(text, Strictness::checking), vector);
    check_case(test::schema(text, Strictness::generation), vector);
  }
}

TEST(SchemaVectors, GbnfFixtures) {
  const nlohmann::json vectors = read_json(STRATA_TEST_DATA "/grammar/gbnf.json");
  ASSERT_EQ(vectors.size(), 3U);
  for (const auto& vector : vectors)
    check_case(test::gbnf(vector["grammar"].get<std::string>()), vector);
}

TEST(SchemaVectors, RandomSchemasAreJudgedAsByJsonschema) {
  const nlohmann::json vectors = read_json(STRATA_GRAMMAR_VECTORS "/schema_vectors.json");
  ASSERT_EQ(vectors.size(), 500U);
  size_t taken_in_generation = 0;
  for (const auto& vector : vectors) {
    const std::string text = vector["schema"].dump();
    check_case(test::schema(text, Strictness::checking), vector);
    const auto generation = test::schema(text, Strictness::generation);
    for (const auto& document : vector["rejected"]) {
      EXPECT_FALSE(test::accepts(generation, document.get<std::string>())) << document;
    }
    for (const auto& document : vector["accepted"]) {
      if (test::accepts(generation, document.get<std::string>())) ++taken_in_generation;
    }
  }
  EXPECT_GT(taken_in_generation, 3000U);
}

}  // namespace
}  // namespace strata::grammar
