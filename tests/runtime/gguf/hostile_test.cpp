// Goal: no file, however made, does more than be refused with a clear sentence.
// Method: the base model with one thing changed, as a table of (name, change, words of the error);
// each must be refused in under a second, naming file and offset, with little memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/mapped_file.h"
#include "runtime/gguf/gguf_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/process_memory.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::array_bytes;
using test::bytes_of;
using test::GgufWriter;
using test::make_base_model;
using test::string_bytes;
using test::TempDir;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr uint64_t kAllOnes = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kTop = uint64_t{1} << 63;
constexpr uint32_t kArray = 9;
constexpr uint32_t kString = 8;

struct Case {
  std::string name;
  std::string bytes;
  std::string wanted;  // words of the error
};

// The base model, changed by `change`.
template <typename Change>
std::string changed(Change change) {
  GgufWriter writer = make_base_model();
  change(writer);
  return writer.build();
}

// The base model's bytes with those at `offset` replaced.
std::string patched(size_t offset, std::string_view bytes) {
  return make_base_model().build().replace(offset, bytes.size(), bytes);
}

// The base model with one more key, of a type and value given as raw bytes.
std::string with_value(uint32_t type, const std::string& value) {
  return changed(
      [&](GgufWriter& w) { w.metadata.push_back({.key = "x", .type = type, .value = value}); });
}

// Two keys only, the second one as given, then nothing: what is last in the file.
std::string with_last_key(const std::string& key, std::optional<uint64_t> length) {
  GgufWriter writer;
  writer.set_string("general.architecture", "llama");
  writer.metadata.push_back(
      {.key = key, .type = 4, .value = bytes_of<uint32_t>(1), .key_length = length});
  return writer.build();
}

// The base model with one more tensor, its data following the others'.
std::string with_tensor(const test::TensorEntry& entry) {
  return changed([&](GgufWriter& w) { w.tensors.push_back(entry); });
}

// A file of one tensor "a" with 128 bytes of data, whatever its shape says.
std::string lone_tensor(std::vector<uint64_t> ne, uint32_t type, size_t data_bytes = 128) {
  GgufWriter writer;
  writer.tensors.push_back(
      {.name = "a", .ne = std::move(ne), .type = type, .data = std::string(data_bytes, '\0')});
  return writer.build();
}

test::TensorEntry entry_of(std::string name, std::optional<uint64_t> name_length = {}) {
  return {.name = std::move(name),
          .ne = {8},
          .type = 0,
          .data = std::string(32, '\0'),
          .name_length = name_length};
}

std::string with_alignment(ValueType type, const std::string& value) {
  return changed([&](GgufWriter& w) { w.set("general.alignment", type, value); });
}

std::string nested_arrays(int depth) {
  std::string value = array_bytes(kArray, 1, "");
  for (int i = 1; i < depth; ++i) value += array_bytes(kArray, 1, "");
  return value + array_bytes(4, 1, bytes_of<uint32_t>(7));
}

void add_header_cases(std::vector<Case>& cases) {
  const std::string base = make_base_model().build();
  cases.insert(
      cases.end(),
      {{"empty file", "", "truncated header"},
       {"three bytes", "GGU", "truncated header"},
       {"magic and nothing", "GGUF", "truncated header"},
       {"counts cut", base.substr(0, 23), "truncated header"},
       {"magic reversed", patched(0, "FUGG"), "not a GGUF file"},
       {"text file", "once upon a time there was a model", "not a GGUF file"},
       {"big-endian", patched(4, bytes_of<uint32_t>(0x03000000)),
        "version 50331648: wrong endianness?"},
       {"version 0", patched(4, bytes_of<uint32_t>(0)), "version 0 is not supported"},
       {"version 1", patched(4, bytes_of<uint32_t>(1)), "version 1 is not supported"},
       {"version 4", patched(4, bytes_of<uint32_t>(4)), "version 4 is not supported"},
       {"n_kv all ones", patched(16, bytes_of(kAllOnes)), "n_kv cannot fit"},
       {"n_kv 2^58", patched(16, bytes_of(uint64_t{1} << 58)), "n_kv cannot fit"},
       {"n_kv 2^60", patched(16, bytes_of(uint64_t{1} << 60)), "n_kv cannot fit"},
       {"n_kv as many as bytes", patched(16, bytes_of<uint64_t>(base.size())), "n_kv cannot fit"},
       {"n_tensors all ones", patched(8, bytes_of(kAllOnes)), "n_tensors cannot fit"},
       {"n_tensors 2^60", patched(8, bytes_of(uint64_t{1} << 60)), "n_tensors cannot fit"},
       {"one tensor too many", changed([](GgufWriter& w) { w.n_tensors = w.tensors.size() + 1; }),
        "tensor"},
       {"one key too many", changed([](GgufWriter& w) { w.n_kv = w.metadata.size() + 1; }),
        "tensor name of"},
       {"header whole, no data", make_base_model().header(), "past end of file"}});
}

void add_key_cases(std::vector<Case>& cases) {
  cases.insert(
      cases.end(),
      {{"key length all ones", with_last_key("k", kAllOnes), "key past end"},
       {"key length 2^63", with_last_key("k", kTop), "key past end"},
       // The key, its type and its value are what remains: 1 + 4 + 4 bytes.
       {"key length remaining + 1", with_last_key("k", 10), "key past end"},
       {"empty key", with_last_key("", {}), "empty key"},
       {"37 bytes with an empty key",
        [] {
          GgufWriter writer;
          writer.set_u32("", 5);
          return writer.build() + "\0";
        }(),
        "empty key"},
       {"key with NUL", with_last_key(std::string("a\0b", 3), {}), "key is not UTF-8 text"},
       {"key FF FE", with_last_key("\xFF\xFE", {}), "key is not UTF-8 text"},
       {"key overlong", with_last_key("\xC0\xAF", {}), "key is not UTF-8 text"},
       {"key surrogate", with_last_key("\xED\xA0\x80", {}), "key is not UTF-8 text"},
       {"key of 65,536 bytes", with_last_key(std::string(65536, 'k'), {}), "key of 65536 bytes"},
       {"duplicate key", changed([](GgufWriter& w) {
          w.metadata.push_back(
              {.key = "general.architecture", .type = kString, .value = string_bytes("llama")});
        }),
        "duplicate key"}});
}

void add_value_cases(std::vector<Case>& cases) {
  const std::string empty_string = string_bytes("");
  cases.insert(
      cases.end(),
      {{"value type 13", with_value(13, bytes_of<uint32_t>(1)), "value type 13"},
       {"value type all ones", with_value(0xFFFFFFFF, ""), "value type 4294967295"},
       {"string length all ones", with_value(kString, bytes_of(kAllOnes)), "string past end"},
       {"string length 2^63", with_value(kString, bytes_of(kTop)), "string past end"},
       {"string length 2^30 + 1", with_value(kString, bytes_of<uint64_t>((1 << 30) + 1)),
        "string past end"},
       {"nested array", with_value(kArray, nested_arrays(1)), "nested array"},
       {"nested array 100,000 deep", with_value(kArray, nested_arrays(100'000)), "nested array"},
       {"element type 13", with_value(kArray, array_bytes(13, 1, "x")), "element type 13"},
       {"element type 99, count 2^60", with_value(kArray, array_bytes(99, uint64_t{1} << 60, "")),
        "element type 99"},
       {"2^60 strings", with_value(kArray, array_bytes(8, uint64_t{1} << 60, "")),
        "array past end"},
       {"2^61 u64", with_value(kArray, array_bytes(10, uint64_t{1} << 61, "")), "array past end"},
       {"all-ones u8", with_value(kArray, array_bytes(0, kAllOnes, "")), "array past end"},
       {"more u32 than bytes", with_value(kArray, array_bytes(4, 1 << 20, "")), "array past end"},
       {"string in an array past the end",
        with_value(kArray, array_bytes(8, 2, empty_string + bytes_of(kAllOnes))),
        "string past end of file (element 1)"},
       {"bool 2", with_value(7, "\x02"), "bool is 2"},
       {"bool array with 7", with_value(kArray, array_bytes(7, 2, std::string("\x01\x07", 2))),
        "bool is 7"}});
}

void add_alignment_cases(std::vector<Case>& cases) {
  const auto u32 = [](uint32_t value) { return with_alignment(ValueType::u32, bytes_of(value)); };
  cases.insert(
      cases.end(),
      {{"alignment 0", u32(0), "alignment 0"},
       {"alignment 1", u32(1), "alignment 1 "},
       {"alignment 3", u32(3), "alignment 3 "},
       {"alignment 4", u32(4), "alignment 4 "},
       {"alignment 48", u32(48), "alignment 48"},
       {"alignment 2^21", u32(1 << 21), "alignment over 1 MiB"},
       {"alignment 2^31", u32(0x80000000), "alignment over 1 MiB"},
       {"alignment i32", with_alignment(ValueType::i32, bytes_of<int32_t>(32)), "alignment"},
       {"alignment u64", with_alignment(ValueType::u64, bytes_of<uint64_t>(32)), "alignment"},
       {"alignment string", with_alignment(ValueType::string, string_bytes("32")), "alignment"},
       {"alignment array",
        with_alignment(ValueType::array, array_bytes(4, 1, bytes_of<uint32_t>(32))), "alignment"},
       {"alignment 256 over data aligned to 32", u32(256), "unaligned"}});
}

void add_tensor_name_cases(std::vector<Case>& cases) {
  cases.insert(
      cases.end(),
      {{"tensor name of 64 bytes", with_tensor(entry_of(std::string(64, 'n'))), "tensor name"},
       {"tensor name length all ones", with_tensor(entry_of("n", kAllOnes)), "tensor name"},
       {"tensor name length 2^63", with_tensor(entry_of("n", kTop)), "tensor name"},
       {"tensor name empty", with_tensor(entry_of("")), "tensor name is empty"},
       {"tensor name with NUL", with_tensor(entry_of(std::string("a\0b", 3))),
        "tensor name is not UTF-8 text"},
       {"tensor name with escape", with_tensor(entry_of("a\x1b[2J")), "tensor name is not"},
       {"tensor name FF FE", with_tensor(entry_of("\xFF\xFE")), "tensor name is not UTF-8 text"},
       {"duplicate tensor", with_tensor(entry_of("output.weight")), "duplicate tensor"}});
}

void add_shape_cases(std::vector<Case>& cases) {
  const auto dims = [](uint32_t n_dims) {
    return changed([&](GgufWriter& w) { w.tensors.back().n_dims = n_dims; });
  };
  const auto embedding = [](uint64_t tokens) {
    return changed([&](GgufWriter& w) { w.tensor("token_embd.weight").ne = {32, tokens}; });
  };
  cases.insert(
      cases.end(),
      {{"n_dims 5", dims(5), "n_dims 5"},
       {"n_dims 1,000,000", dims(1'000'000), "n_dims 1000000"},
       {"n_dims all ones", dims(0xFFFFFFFF), "n_dims 4294967295"},
       {"dimension 0", lone_tensor({0}, 0), "dimension 0"},
       {"second dimension 0", lone_tensor({4, 0}, 0), "dimension 1"},
       {"dimension all ones", lone_tensor({kAllOnes}, 0), "dimension"},
       {"dimension 2^63", lone_tensor({kTop}, 0), "dimension"},
       {"token_embd rows 2^42 + 1", embedding((uint64_t{1} << 42) + 1), "past end of file"},
       {"token_embd rows 2^63 - 1", embedding(kTop - 1), "byte size"},
       {"bytes 2^64 - 16, padding wraps", lone_tensor({4, (1u << 30) - 1, (1u << 30) + 1}, 0),
        "byte size"},
       {"elements 2^64", lone_tensor({1u << 31, 1u << 31, 4}, 0), "byte size"},
       {"elements 2^128", lone_tensor({1ull << 32, 1ull << 32, 1ull << 32, 1ull << 32}, 0),
        "byte size"},
       {"F32 of 2^62 - 1", lone_tensor({0x3FFFFFFFFFFFFFFF}, 0), "byte size"},
       {"Q4_0, 18 * ne wraps to 128", lone_tensor({0x0E38E38E38E38E40}, 2), "past end of file"},
       {"Q8_0, 34 * ne wraps", lone_tensor({0x07878787878787A0}, 8), "past end of file"},
       {"Q4_K, 144 * ne wraps", lone_tensor({0x01C71C71C71C7200}, 12), "past end of file"},
       {"Q4_0 row of 33", lone_tensor({33}, 2), "33 elements are no whole number of Q4_0 blocks"},
       {"Q4_K row of 128", lone_tensor({128, 2}, 12), "no whole number of Q4_K blocks"}});
}

void add_type_and_offset_cases(std::vector<Case>& cases) {
  for (const uint32_t type : {4u, 5u, 31u, 33u, 36u, 38u, 43u, 1000u, 0x7FFFFFFFu, 0xFFFFFFFFu}) {
    cases.push_back({"tensor type " + std::to_string(type), lone_tensor({32}, type),
                     "unknown tensor type " + std::to_string(type)});
  }
  const auto at = [](uint64_t offset) {
    return changed([&](GgufWriter& w) { w.tensors.back().offset = offset; });
  };
  const uint64_t data_bytes = make_base_model().build().size();
  cases.insert(cases.end(), {{"offset 1", at(1), "unaligned"},
                             {"offset all ones", at(kAllOnes), "unaligned"},
                             {"offset wraps to the start", at(kAllOnes - 31), "past end of file"},
                             {"offset 2^63", at(kTop), "past end of file"},
                             {"offset at the end", at(data_bytes / 32 * 32), "past end of file"},
                             {"two tensors at offset 0", at(0), "overlap"},
                             {"a tensor begins inside another",
                              changed([](GgufWriter& w) { w.tensors[1].offset = 32; }), "overlap"},
                             {"a gap of 32 bytes", changed([](GgufWriter& w) {
                                w.add_f32_tensor("extra", {8});
                                w.tensors.back().data = std::string(64, '\0');
                                uint64_t offset = 0;
                                for (size_t i = 0; i + 1 < w.tensors.size(); ++i) {
                                  offset += (w.tensors[i].data.size() + 31) / 32 * 32;
                                }
                                w.tensors.back().offset = offset + 32;
                              }),
                              "gap"},
                             {"a gap before the first tensor",
                              [] {
                                GgufWriter writer;
                                writer.add_f32_tensor("a", {8});
                                writer.tensors[0].data = std::string(64, '\0');
                                writer.tensors[0].offset = 32;
                                return writer.build();
                              }(),
                              "gap"}});
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  add_header_cases(cases);
  add_key_cases(cases);
  add_value_cases(cases);
  add_alignment_cases(cases);
  add_tensor_name_cases(cases);
  add_shape_cases(cases);
  add_type_and_offset_cases(cases);
  return cases;
}

TEST(HostileGguf, EachIsRefusedWithItsReasonAndPlace) {
  const TempDir dir;
  const std::vector<Case> cases = all_cases();
  ASSERT_GT(cases.size(), 90u);
  for (const Case& hostile : cases) {
    SCOPED_TRACE(hostile.name);
    const std::string path = dir.write("hostile.gguf", hostile.bytes);
    test::reset_peak_resident();
    const uint64_t resident = test::resident_bytes();
    const std::clock_t start = std::clock();  // processor time: others may use the machine
    const auto model = GgufFile::open(path);
    const double elapsed_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    EXPECT_LT(elapsed_s, 1.0);
    EXPECT_LT(test::peak_resident_bytes(), resident + (uint64_t{64} << 20));
    ASSERT_FALSE(model.ok());
    EXPECT_EQ(model.status().code(), StatusCode::invalid_argument);
    const std::string message = model.status().message();
    EXPECT_THAT(message, StartsWith(path + ": "));
    EXPECT_THAT(message, HasSubstr(hostile.wanted));
    EXPECT_THAT(message, MatchesRegex(".* at offset [0-9]+"));
  }
}

TEST(HostileGguf, TheBaseModelItselfIsSound) {
  const TempDir dir;
  const auto model = GgufFile::open(dir.write("base.gguf", make_base_model().build()));
  EXPECT_TRUE(model.ok()) << model.status().to_string();
}

TEST(HostileGguf, ACutAtEveryByteBeforeTheDataIsAnError) {
  const std::string base = make_base_model().build();
  const size_t header = make_base_model().header().size();
  for (size_t size = 0; size <= header; ++size) {
    const auto bytes = std::as_bytes(std::span(base.data(), size));
    ASSERT_FALSE(parse_header(bytes, "cut").ok()) << size;
    // Without its data a header is whole only at its very end.
    ASSERT_EQ(parse_header(bytes, "cut", {.allow_missing_data = true}).ok(), size == header)
        << size;
  }
}

TEST(HostileGguf, ACutWithinTheDataNamesTheTensor) {
  const TempDir dir;
  const std::string base = make_base_model().build();
  for (const size_t gone : {size_t{1}, size_t{4096}, base.size() / 2}) {
    const auto model = GgufFile::open(dir.write("cut.gguf", base.substr(0, base.size() - gone)));
    ASSERT_FALSE(model.ok()) << gone;
    EXPECT_THAT(model.status().message(), HasSubstr("past end of file"));
    EXPECT_THAT(model.status().message(), HasSubstr("tensor '"));
  }
}

// Every byte of the header set to a few other values: whatever comes of it, no crash and no hang.
TEST(HostileGguf, NoSingleByteOfTheHeaderIsTrusted) {
  const std::string base = make_base_model().build();
  const size_t header = make_base_model().header().size();
  std::string bytes = base;
  size_t refused = 0;
  for (size_t i = 0; i < header; ++i) {
    for (const char value : {'\0', '\x01', '\x7F', '\x80', '\xFF'}) {
      bytes[i] = value;
      if (!parse_header(std::as_bytes(std::span(bytes)), "flipped").ok()) ++refused;
    }
    bytes[i] = base[i];
  }
  EXPECT_GT(refused, header / 2);
}

TEST(HostileGguf, TenMillionEmptyStringsCostLittle) {
  const TempDir dir;
  constexpr uint64_t kCount = 10'000'000;
  std::string path;
  uint64_t file_bytes = 0;
  {
    GgufWriter writer;
    writer.set("tokens", ValueType::array,
               array_bytes(kString, kCount, std::string(kCount * 8, '\0')));
    const std::string bytes = writer.build();
    file_bytes = bytes.size();
    path = dir.write("strings.gguf", bytes);
  }
  test::reset_peak_resident();
  const uint64_t resident = test::resident_bytes();
  const std::clock_t start = std::clock();  // processor time: others may use the machine
  const auto model = GgufFile::open(path);
  const double elapsed_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  EXPECT_LT(elapsed_s, test::under_sanitizer() ? 10.0 : 1.0);
  EXPECT_EQ(model.value()->metadata().get_strings("tokens").value().size(), kCount);
  if (!test::under_sanitizer()) {
    EXPECT_LT(test::peak_resident_bytes(), resident + 4 * file_bytes);
  }
}

TEST(HostileGguf, MetadataOver256MiBIsRefused) {
  const TempDir dir;
  // A sparse file: a string of 300 MiB costs no disk.
  GgufWriter writer;
  writer.set("x", ValueType::string, bytes_of(uint64_t{300} << 20));
  const std::string path = dir.write("large.gguf", writer.build());
  std::filesystem::resize_file(path, uint64_t{400} << 20);
  const auto text = GgufFile::open(path);
  ASSERT_FALSE(text.ok());
  EXPECT_THAT(text.status().message(), HasSubstr("metadata over 256 MiB"));

  writer.set("x", ValueType::array, array_bytes(4, uint64_t{80} << 20, ""));
  const std::string array_path = dir.write("large.gguf", writer.build());
  std::filesystem::resize_file(array_path, uint64_t{400} << 20);
  const auto array = GgufFile::open(array_path);
  ASSERT_FALSE(array.ok());
  EXPECT_THAT(array.status().message(), HasSubstr("metadata over 256 MiB"));
}

TEST(HostileGguf, AFileTruncatedAfterTheMapIsReportedAndItsMetadataStays) {
  const TempDir dir;
  const std::string path = dir.write("base.gguf", make_base_model().build());
  const auto model = GgufFile::open(path).value();
  ASSERT_TRUE(model->check_unchanged().ok());
  std::filesystem::resize_file(path, 100);
  const Status status = model->check_unchanged();
  EXPECT_EQ(status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(status.message(), HasSubstr("model changed on disk"));
  // Read from memory, not from the mapping, which would raise SIGBUS.
  EXPECT_EQ(model->metadata().get_strings("tokenizer.ggml.tokens").value()[258], "<0xFF>");
  std::vector<std::byte> out(64);
  const Status read = model->file(0).read(model->tensors()[0].offset, out);
  EXPECT_THAT(read.message(), HasSubstr("model changed on disk"));
}

TEST(HostileGguf, WhatIsNoFileIsSaidSo) {
  const TempDir dir;
  EXPECT_EQ(GgufFile::open(dir.path() + "/none.gguf").status().code(), StatusCode::not_found);
  EXPECT_EQ(GgufFile::open(dir.path()).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace strata
