// Goal: a set of files is one model, and a set that is not whole says what is wrong with it.
#include "runtime/gguf/split_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "runtime/gguf/gguf_file.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::bytes_of;
using test::GgufWriter;
using test::make_base_model;
using test::TempDir;
using ::testing::HasSubstr;

void set_split(GgufWriter& writer, uint16_t number, uint16_t count, int32_t tensors) {
  writer.set("split.no", ValueType::u16, bytes_of(number));
  writer.set("split.count", ValueType::u16, bytes_of(count));
  writer.set("split.tensors.count", ValueType::i32, bytes_of(tensors));
}

// The base model in three parts: metadata alone, then its tensors in two halves.
std::vector<GgufWriter> base_in_three() {
  const GgufWriter base = make_base_model();
  const auto total = static_cast<int32_t>(base.tensors.size());
  std::vector<GgufWriter> parts(3);
  parts[0].metadata = base.metadata;
  const auto middle = base.tensors.begin() + total / 2;
  parts[1].tensors.assign(base.tensors.begin(), middle);
  parts[2].tensors.assign(middle, base.tensors.end());
  for (uint16_t i = 0; i < 3; ++i) set_split(parts[i], i, 3, total);
  return parts;
}

std::string part_name(size_t number) {
  return "m-0000" + std::to_string(number) + "-of-00003.gguf";
}

// Writes the parts and opens the set by part `opened`, from 1.
Result<std::shared_ptr<GgufFile>> open_set(const TempDir& dir, const std::vector<GgufWriter>& parts,
                                           size_t opened = 1) {
  for (size_t i = 0; i < parts.size(); ++i) dir.write(part_name(i + 1), parts[i].build());
  return GgufFile::open(dir.path() + "/" + part_name(opened));
}

TEST(SplitFiles, NamesAreParsedAndMade) {
  const std::optional<SplitName> name = parse_split_name("/m/a-00002-of-00013.gguf");
  ASSERT_TRUE(name.has_value());
  EXPECT_EQ(name->prefix, "/m/a");
  EXPECT_EQ(name->number, 2u);
  EXPECT_EQ(name->count, 13u);
  EXPECT_EQ(name->path_of(13), "/m/a-00013-of-00013.gguf");
  for (const char* bad : {"", "a.gguf", "a-0002-of-00013.gguf", "a-00014-of-00013.gguf",
                          "a-00000-of-00003.gguf", "-00001-of-00003.gguf", "a-00001-of-00003.bin",
                          "a-0x001-of-00003.gguf", "a-00001_of-00003.gguf"}) {
    EXPECT_FALSE(parse_split_name(bad).has_value()) << bad;
  }
}

TEST(SplitFiles, AnyPartOpensTheWholeSet) {
  const GgufWriter base = make_base_model();
  for (size_t opened = 1; opened <= 3; ++opened) {
    const TempDir dir;
    const auto model = open_set(dir, base_in_three(), opened).value();
    EXPECT_EQ(model->file_count(), 3u);
    EXPECT_EQ(model->architecture().value(), "llama");
    ASSERT_EQ(model->tensors().size(), base.tensors.size());
    for (const test::TensorEntry& written : base.tensors) {
      const auto bytes = model->tensor_bytes(*model->find_tensor(written.name));
      EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                written.data);
    }
  }
}

TEST(SplitFiles, TheHeaderOfASetIsThatOfOneFile) {
  const TempDir dir;
  const auto set = open_set(dir, base_in_three()).value();
  const auto whole = GgufFile::open(dir.write("whole.gguf", make_base_model().build())).value();
  EXPECT_EQ(serialize_header(*set), serialize_header(*whole));
}

TEST(SplitFiles, AMissingPartIsNamed) {
  const TempDir dir;
  std::vector<GgufWriter> parts = base_in_three();
  parts.pop_back();
  const Status status = open_set(dir, parts).status();
  EXPECT_EQ(status.code(), StatusCode::not_found);
  EXPECT_THAT(status.message(), HasSubstr("part 3 of 3 is missing"));
  EXPECT_THAT(status.message(), HasSubstr(part_name(3)));
  EXPECT_FALSE(status.hint().empty());
}

struct BadSet {
  const char* name;
  void (*change)(std::vector<GgufWriter>&);
  const char* wanted;
};

TEST(SplitFiles, AnInconsistentSetIsRefused) {
  const BadSet cases[] = {
      {"wrong number", [](auto& p) { set_split(p[1], 2, 3, 21); }, "split.no"},
      {"number over count", [](auto& p) { set_split(p[1], 3, 3, 21); }, "split.no"},
      {"other count", [](auto& p) { set_split(p[2], 2, 4, 21); }, "split.count"},
      {"count 0", [](auto& p) { set_split(p[0], 0, 0, 21); }, "split.count"},
      {"count of another type", [](auto& p) { p[0].set_string("split.count", "3"); },
       "must be an integer"},
      {"no number", [](auto& p) { p[0].erase("split.no"); }, "split.no"},
      {"a part that is no part", [](auto& p) { p[1].erase("split.count"); }, "split.count"},
      {"a tensor too few", [](auto& p) { p[2].tensors.pop_back(); }, "split.tensors.count"},
      {"a tensor twice", [](auto& p) { p[2].tensors.back().name = "token_embd.weight"; },
       "duplicate tensor"},
      {"a broken part", [](auto& p) { p[1].magic = "GGML"; }, "00002-of-00003.gguf: not a GGUF"},
  };
  for (const BadSet& bad : cases) {
    SCOPED_TRACE(bad.name);
    const TempDir dir;
    std::vector<GgufWriter> parts = base_in_three();
    bad.change(parts);
    const Status status = open_set(dir, parts).status();
    ASSERT_EQ(status.code() == StatusCode::ok, false);
    EXPECT_THAT(status.message(), HasSubstr(bad.wanted));
  }
}

TEST(SplitFiles, ARenamedPartIsToldItsName) {
  const TempDir dir;
  const Status status = GgufFile::open(dir.write("part.gguf", base_in_three()[1].build())).status();
  EXPECT_THAT(status.message(), HasSubstr("must end in -00002-of-00003.gguf"));
}

}  // namespace
}  // namespace strata
