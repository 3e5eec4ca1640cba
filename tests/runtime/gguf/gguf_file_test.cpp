// Goal: a model is opened whole, from one file or a set, and from its header alone.
#include "runtime/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::GgufWriter;
using test::make_base_model;
using test::TempDir;
using ::testing::HasSubstr;

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

TEST(GgufFile, OpensTheBaseModel) {
  const TempDir dir;
  const GgufWriter writer = make_base_model();
  const auto model = GgufFile::open(dir.write("base.gguf", writer.build())).value();
  EXPECT_EQ(model->architecture().value(), "llama");
  EXPECT_EQ(model->tensors().size(), writer.tensors.size());
  EXPECT_EQ(model->metadata().size(), writer.metadata.size());
  ASSERT_TRUE(model->has_data());
  for (const test::TensorEntry& written : writer.tensors) {
    const TensorInfo* tensor = model->find_tensor(written.name);
    ASSERT_NE(tensor, nullptr) << written.name;
    const auto bytes = model->tensor_bytes(*tensor);
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
              written.data)
        << written.name;
  }
  EXPECT_EQ(model->find_tensor("blk.7.attn_q.weight"), nullptr);
  EXPECT_EQ(shape_text(*model->find_tensor("token_embd.weight")), "{32, 288}");
  EXPECT_EQ(model->parameter_count() * 4, model->tensor_bytes_total());
}

TEST(GgufFile, AFileWithoutTensorsIsAModelToo) {
  const TempDir dir;
  GgufWriter writer;
  writer.set_string("general.architecture", "something-new");
  const auto model = GgufFile::open(dir.write("vocab.gguf", writer.build())).value();
  EXPECT_EQ(model->architecture().value(), "something-new");
  EXPECT_TRUE(model->tensors().empty());
}

TEST(GgufFile, ItsHeaderTravelsWithoutDataAndWithoutTheVocabulary) {
  const TempDir dir;
  const auto model = GgufFile::open(dir.write("base.gguf", make_base_model().build())).value();
  const std::string header = serialize_header(*model, {.keep_key = keep_without_tokenizer});
  const auto copy = GgufFile::from_header(as_bytes(header), "from the coordinator").value();
  EXPECT_FALSE(copy->has_data());
  EXPECT_EQ(copy->metadata().size(), model->metadata().size() - 3);
  EXPECT_FALSE(copy->metadata().contains("tokenizer.ggml.tokens"));
  EXPECT_EQ(copy->metadata().get<uint32_t>("llama.block_count").value(), 2u);
  ASSERT_EQ(copy->tensors().size(), model->tensors().size());
  for (size_t i = 0; i < copy->tensors().size(); ++i) {
    EXPECT_EQ(copy->tensors()[i].name, model->tensors()[i].name);
    EXPECT_EQ(copy->tensors()[i].ne, model->tensors()[i].ne);
    EXPECT_EQ(copy->tensors()[i].size_bytes, model->tensors()[i].size_bytes);
  }
  EXPECT_EQ(serialize_header(*copy), header);
  // The same bytes as a file are a file that lacks its data.
  const auto as_file = GgufFile::open(dir.write("header.gguf", header));
  ASSERT_FALSE(as_file.ok());
  EXPECT_THAT(as_file.status().message(), HasSubstr("past end of file"));
}

// The models of STRATA_MODELS_DIR, or none.
std::vector<std::string> real_models() {
  std::vector<std::string> paths;
  const char* folder = std::getenv("STRATA_MODELS_DIR");
  if (folder == nullptr) return paths;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".gguf") paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(GgufFile, RealModelsOpenAtOnce) {
  if (real_models().empty()) GTEST_SKIP() << "no model in STRATA_MODELS_DIR";
  for (const std::string& path : real_models()) {
    const std::clock_t start = std::clock();  // processor time: others may use the machine
    const auto model = GgufFile::open(path);
    const double elapsed_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_FALSE(model.value()->tensors().empty());
    EXPECT_LT(elapsed_s, 1.0) << path;
  }
}

// A cut copy has the header and the size of a real one, its data being holes that take no disk.
TEST(GgufFile, RealModelsCutShortAreRefused) {
  if (real_models().empty()) GTEST_SKIP() << "no model in STRATA_MODELS_DIR";
  const TempDir dir;
  for (const std::string& path : real_models()) {
    const auto file = MappedFile::open(path).value();
    const GgufHeader header = parse_header(file->bytes(), path).value();
    const std::string start(reinterpret_cast<const char*>(file->bytes().data()),
                            static_cast<size_t>(header.header_bytes));
    const std::string copy = dir.write("copy.gguf", start);
    std::filesystem::resize_file(copy, file->size());
    ASSERT_TRUE(GgufFile::open(copy).ok());
    for (const uint64_t size : {file->size() - 1, file->size() - 4096, file->size() / 2,
                                header.header_bytes, uint64_t{100}, uint64_t{0}}) {
      std::filesystem::resize_file(copy, size);
      const auto cut = GgufFile::open(copy);
      ASSERT_FALSE(cut.ok()) << path << " cut to " << size;
      EXPECT_THAT(cut.status().message(),
                  HasSubstr(size >= header.header_bytes ? "past end of file" : ""));
    }
  }
}

}  // namespace
}  // namespace strata
