// Goal: every type of value is read exactly, and a getter never gives what it was not asked for.
#include "runtime/gguf/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <limits>

#include "runtime/gguf/gguf_reader.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/process_memory.h"

namespace strata {
namespace {

using test::array_bytes;
using test::bytes_of;
using test::GgufWriter;
using test::string_bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Metadata metadata_of(const GgufWriter& writer) {
  const std::string bytes = writer.build();
  return parse_header(std::as_bytes(std::span(bytes)), "test.gguf").value().metadata;
}

// One key of each of the 13 types, named after it.
GgufWriter all_types() {
  GgufWriter writer;
  writer.set("u8", ValueType::u8, bytes_of<uint8_t>(200));
  writer.set("i8", ValueType::i8, bytes_of<int8_t>(-100));
  writer.set("u16", ValueType::u16, bytes_of<uint16_t>(60000));
  writer.set("i16", ValueType::i16, bytes_of<int16_t>(-30000));
  writer.set("u32", ValueType::u32, bytes_of<uint32_t>(4000000000));
  writer.set("i32", ValueType::i32, bytes_of<int32_t>(-2000000000));
  writer.set("f32", ValueType::f32, bytes_of(1.5F));
  writer.set("bool", ValueType::boolean, bytes_of<uint8_t>(1));
  writer.set("string", ValueType::string, string_bytes("h\xC3\xA9llo"));
  writer.set("array", ValueType::array,
             array_bytes(3, 2, bytes_of<int16_t>(-1) + bytes_of<int16_t>(2)));
  writer.set("u64", ValueType::u64, bytes_of(std::numeric_limits<uint64_t>::max()));
  writer.set("i64", ValueType::i64, bytes_of(std::numeric_limits<int64_t>::min()));
  writer.set("f64", ValueType::f64, bytes_of(1e300));
  return writer;
}

void expect_all_types(const Metadata& metadata) {
  EXPECT_EQ(metadata.get<uint32_t>("u8").value(), 200u);
  EXPECT_EQ(metadata.get<int32_t>("i8").value(), -100);
  EXPECT_EQ(metadata.get<int64_t>("u16").value(), 60000);
  EXPECT_EQ(metadata.get<int64_t>("i16").value(), -30000);
  EXPECT_EQ(metadata.get<uint32_t>("u32").value(), 4000000000u);
  EXPECT_EQ(metadata.get<int32_t>("i32").value(), -2000000000);
  EXPECT_EQ(metadata.get<float>("f32").value(), 1.5F);
  EXPECT_TRUE(metadata.get<bool>("bool").value());
  EXPECT_EQ(metadata.get<std::string>("string").value(), "h\xC3\xA9llo");
  EXPECT_THAT(metadata.get_numbers<int32_t>("array").value(), ElementsAre(-1, 2));
  EXPECT_EQ(metadata.get<uint64_t>("u64").value(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(metadata.get<int64_t>("i64").value(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(metadata.get<double>("f64").value(), 1e300);
  ASSERT_EQ(metadata.size(), 13u);
  EXPECT_EQ(metadata.entries()[0].key, "u8");  // the file's order
  EXPECT_EQ(metadata.entries()[12].key, "f64");
}

TEST(Metadata, ReadsAllTypesInBothVersions) {
  GgufWriter writer = all_types();
  expect_all_types(metadata_of(writer));
  writer.version = 2;
  expect_all_types(metadata_of(writer));
}

TEST(Metadata, ShowsValuesAsText) {
  const Metadata metadata = metadata_of(all_types());
  EXPECT_EQ(metadata.find("u64")->text(0), "18446744073709551615");
  EXPECT_EQ(metadata.find("i8")->text(0), "-100");
  EXPECT_EQ(metadata.find("f32")->text(0), "1.5");
  EXPECT_EQ(metadata.find("bool")->text(0), "true");
  EXPECT_EQ(metadata.find("array")->text(1), "2");
}

TEST(Metadata, RefusesAWrongTypeNamingKeyWantedAndFound) {
  const Metadata metadata = metadata_of(all_types());
  const Status status = metadata.get<uint32_t>("string").status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(),
              ::testing::MatchesRegex(
                  "test.gguf: key 'string' is a string, must be an integer at offset [0-9]+"));
  EXPECT_THAT(metadata.get<bool>("u8").status().message(), HasSubstr("is a u8, must be a bool"));
  EXPECT_THAT(metadata.get<int32_t>("bool").status().message(),
              HasSubstr("is a bool, must be an integer"));
  EXPECT_THAT(metadata.get<float>("u32").status().message(), HasSubstr("must be a float"));
  EXPECT_THAT(metadata.get<std::string>("i64").status().message(), HasSubstr("must be a string"));
  EXPECT_THAT(metadata.get<int32_t>("array").status().message(), HasSubstr("is an array of i16"));
  EXPECT_THAT(metadata.get_strings("array").status().message(), HasSubstr("must be string array"));
  EXPECT_THAT(metadata.get_strings("string").status().message(), HasSubstr("must be string array"));
  EXPECT_THAT(metadata.get_numbers<float>("array").status().message(),
              HasSubstr("must be an array"));
  EXPECT_THAT(metadata.get_numbers<int32_t>("u32").status().message(),
              HasSubstr("must be an array"));
}

TEST(Metadata, RefusesAValueThatDoesNotFit) {
  const Metadata metadata = metadata_of(all_types());
  EXPECT_THAT(metadata.get<int32_t>("u32").status().message(),
              HasSubstr("is 4000000000, must be from -2147483648 to 2147483647"));
  EXPECT_FALSE(metadata.get<uint32_t>("i8").ok());
  EXPECT_FALSE(metadata.get<uint64_t>("i64").ok());
  EXPECT_FALSE(metadata.get<int64_t>("u64").ok());
  EXPECT_FALSE(metadata.get<float>("f64").ok());
  EXPECT_THAT(metadata.get_numbers<uint32_t>("array").status().message(),
              HasSubstr("element 0 is -1"));
}

TEST(Metadata, AMissingKeyIsNamedAndAFallbackNeverHidesAWrongOne) {
  const Metadata metadata = metadata_of(all_types());
  EXPECT_EQ(metadata.get<uint32_t>("none").status().code(), StatusCode::not_found);
  EXPECT_THAT(metadata.get<uint32_t>("none").status().message(),
              HasSubstr("key 'none' is missing"));
  EXPECT_EQ(metadata.get_or<uint32_t>("none", 7).value(), 7u);
  EXPECT_EQ(metadata.get_or<std::string>("none", "x").value(), "x");
  EXPECT_EQ(metadata.get_or<uint32_t>("u8", 7).value(), 200u);
  EXPECT_FALSE(metadata.get_or<uint32_t>("string", 7).ok());
}

TEST(Metadata, FloatsKeepNanAndInfinityForTheirReaders) {
  GgufWriter writer;
  writer.set_f32("nan", std::numeric_limits<float>::quiet_NaN());
  writer.set("inf", ValueType::f64, bytes_of(std::numeric_limits<double>::infinity()));
  const Metadata metadata = metadata_of(writer);
  EXPECT_TRUE(std::isnan(metadata.get<float>("nan").value()));
  EXPECT_TRUE(std::isinf(metadata.get<float>("inf").value()));
}

TEST(Metadata, StringsOfAnArrayAreAnyBytes) {
  const std::vector<std::string> tokens = {std::string("\0", 1),
                                           std::string("a\0b", 3),
                                           "",
                                           std::string(10'000, 'x'),
                                           "\xFF\xFE",
                                           "the"};
  GgufWriter writer;
  writer.set_strings("tokens", tokens);
  Metadata copy;
  {
    const Metadata metadata = metadata_of(writer);
    copy = metadata;
  }
  const StringArray strings = copy.get_strings("tokens").value();
  ASSERT_EQ(strings.size(), tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(strings[i], tokens[i]) << i;
}

TEST(Metadata, EmptyArraysAreArrays) {
  GgufWriter writer;
  writer.set_strings("strings", {});
  writer.set_floats("floats", {});
  const Metadata metadata = metadata_of(writer);
  EXPECT_EQ(metadata.get_strings("strings").value().size(), 0u);
  EXPECT_TRUE(metadata.get_numbers<float>("floats").value().empty());
}

TEST(Metadata, ALargeVocabularyIsReadInNoTime) {
  constexpr size_t kTokens = 262'144;
  std::vector<std::string> tokens;
  for (size_t i = 0; i < kTokens; ++i) tokens.push_back("token" + std::to_string(i));
  GgufWriter writer;
  writer.set_strings("tokenizer.ggml.tokens", tokens);
  writer.set_strings("tokenizer.ggml.merges", tokens);
  writer.set_floats("tokenizer.ggml.scores", std::vector<float>(kTokens, -1.0F));
  writer.set_ints("tokenizer.ggml.token_type", std::vector<int32_t>(kTokens, 1));
  const std::string bytes = writer.build();
  const std::clock_t start = std::clock();  // processor time: others may use the machine
  const Result<GgufHeader> header = parse_header(std::as_bytes(std::span(bytes)), "big.gguf");
  const double elapsed_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(header.ok());
  // Measured: 10 ms. The bound is for slower machines.
  EXPECT_LT(elapsed_s, test::under_sanitizer() ? 3.0 : 0.5);
  EXPECT_EQ(header->metadata.get_strings("tokenizer.ggml.tokens").value()[kTokens - 1],
            "token262143");
}

}  // namespace
}  // namespace strata
