// Goal: a model is opened whole, from one file or a set, and from its header alone.
#include "runtime/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

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

TEST(GgufFile, RealModelsOpen) {
  const char* folder = std::getenv("STRATA_MODELS_DIR");
  if (folder == nullptr) GTEST_SKIP() << "STRATA_MODELS_DIR is not set";
  size_t opened = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    const auto model = GgufFile::open(entry.path().string());
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_FALSE(model.value()->tensors().empty());
    ++opened;
  }
  if (opened == 0) GTEST_SKIP() << "no model in " << folder;
}

}  // namespace
}  // namespace strata
