// Weights: which tensors a stage holds, refusals that name them, and loads that are watched,
// stopped, or fed from elsewhere than the file.
#include "runtime/model/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "backends/backends.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WeightsTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(register_all(devices_, {}).ok()); }

  std::shared_ptr<GgufFile> open(const test::GgufWriter& writer) {
    path_ = folder_.write("m.gguf", writer.build());
    auto file = GgufFile::open(path_);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? *file : nullptr;
  }

  Placement placement(const LayerRange& range) {
    Device* cpu = devices_.devices().front();
    return {std::vector<Device*>(static_cast<size_t>(range.count()), cpu), cpu, cpu};
  }

  Result<std::shared_ptr<Weights>> load(const std::shared_ptr<GgufFile>& file,
                                        const LayerRange& range = kWhole,
                                        TensorSource* source = nullptr,
                                        const LoadOptions& options = {}) {
    const auto hparams = read_hparams(*file);
    if (!hparams.ok()) return hparams.status();
    return Weights::load(file, *hparams, range, placement(range), source, options);
  }

  std::string error_of(const test::GgufWriter& writer) {
    const auto weights = load(open(writer));
    return weights.ok() ? "no error" : weights.status().to_string();
  }

  static constexpr LayerRange kWhole = {0, 2, true, true};

  const test::TempDir folder_;
  DeviceRegistry devices_;
  std::string path_;
};

std::string bytes_of(const Tensor& tensor) {
  std::string bytes(static_cast<size_t>(tensor.size_bytes()), '\0');
  const Status status =
      tensor.buffer->read(tensor, 0, std::as_writable_bytes(std::span<char>(bytes)));
  EXPECT_TRUE(status.ok()) << status.to_string();
  return bytes;
}

TEST_F(WeightsTest, HoldWhatTheFileHolds) {
  const auto file = open(test::make_base_model());
  const auto weights = load(file);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  for (const TensorInfo& info : file->tensors()) {
    const Tensor* tensor = (*weights)->find(info.name);
    ASSERT_NE(tensor, nullptr) << info.name;
    const auto wanted = file->tensor_bytes(info);
    const std::string found = bytes_of(*tensor);
    ASSERT_EQ(found.size(), wanted.size());
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size()), 0) << info.name;
  }
}

TEST_F(WeightsTest, BelongToTheirLayerRangeOnly) {
  const auto file = open(test::make_base_model());
  const auto middle = load(file, {1, 2, false, false});
  ASSERT_TRUE(middle.ok());
  EXPECT_NE((*middle)->find("blk.1.attn_q.weight"), nullptr);
  EXPECT_EQ((*middle)->find("blk.0.attn_q.weight"), nullptr);
  EXPECT_EQ((*middle)->find("token_embd.weight"), nullptr);
  EXPECT_EQ((*middle)->find("output.weight"), nullptr);
  const auto head = load(file, {2, 2, false, true});
  ASSERT_TRUE(head.ok());
  EXPECT_NE((*head)->find("output.weight"), nullptr);
  EXPECT_EQ((*head)->find("token_embd.weight"), nullptr);
}

TEST_F(WeightsTest, HoldATiedEmbeddingOnce) {
  test::GgufWriter writer = test::make_base_model();
  std::erase_if(writer.tensors, [](const auto& t) { return t.name == "output.weight"; });
  const auto file = open(writer);
  const auto hparams = read_hparams(*file);
  const auto both = stage_tensors(*file, *hparams, kWhole);
  ASSERT_TRUE(both.ok()) << both.status().to_string();
  EXPECT_EQ(std::count_if(both->begin(), both->end(),
                          [](const TensorInfo* t) { return t->name == "token_embd.weight"; }),
            1);
  const auto head = load(file, {2, 2, false, true});
  ASSERT_TRUE(head.ok());
  EXPECT_NE((*head)->find("token_embd.weight"), nullptr) << "a tied head reads it";
}

TEST_F(WeightsTest, RefuseTensorsThatDoNotFitTheModel) {
  test::GgufWriter missing = test::make_base_model();
  std::erase_if(missing.tensors, [](const auto& t) { return t.name == "blk.1.attn_q.weight"; });
  EXPECT_THAT(error_of(missing), AllOf(HasSubstr("'blk.1.attn_q.weight' is missing"),
                                       HasSubstr("shape wanted {32, 32}")));

  test::GgufWriter transposed = test::make_base_model();
  transposed.tensor("blk.0.attn_k.weight").ne = {16, 32};
  EXPECT_THAT(error_of(transposed),
              AllOf(HasSubstr("'blk.0.attn_k.weight'"), HasSubstr("shape wanted {32, 16}"),
                    HasSubstr("shape found {16, 32}"), HasSubstr("at offset")));

  test::GgufWriter extra = test::make_base_model();
  extra.add_f32_tensor("blk.0.surprise.weight", {32});
  EXPECT_THAT(error_of(extra),
              AllOf(HasSubstr("'blk.0.surprise.weight'"), HasSubstr("shape found {32}")));

  test::GgufWriter integer = test::make_base_model();
  integer.tensor("token_embd.weight").type = static_cast<uint32_t>(DType::i32);
  EXPECT_THAT(error_of(integer),
              AllOf(HasSubstr("'token_embd.weight' is I32"), HasSubstr("shape wanted {32, 288}")));

  test::GgufWriter width = test::make_base_model();
  width.set_u32("llama.embedding_length", 64);
  EXPECT_THAT(error_of(width),
              AllOf(HasSubstr("shape wanted {64, 288}"), HasSubstr("shape found {32, 288}")));

  test::GgufWriter rows = test::make_base_model();
  rows.set_strings("tokenizer.ggml.tokens", std::vector<std::string>(287, "x"));
  EXPECT_THAT(error_of(rows), HasSubstr("shape wanted {32, 287}"));
}

TEST_F(WeightsTest, RefuseATypeThatTheDeviceDoesNotComputeWith) {
  test::GgufWriter writer = test::make_base_model();
  test::TensorEntry& tensor = writer.tensor("blk.0.ffn_up.weight");
  tensor.type = static_cast<uint32_t>(DType::iq4_nl);
  tensor.data.resize(18 * 64);
  EXPECT_THAT(error_of(writer), AllOf(HasSubstr("'blk.0.ffn_up.weight' is IQ4_NL"),
                                      HasSubstr("CPU does not compute with")));
}

TEST_F(WeightsTest, ReportProgressUpToTheSum) {
  const auto file = open(test::make_base_model());
  uint64_t last = 0;
  uint64_t total = 0;
  std::set<std::string> names;
  LoadOptions options;
  options.progress = [&](const LoadProgress& progress) {
    EXPECT_GT(progress.loaded_bytes, last);
    last = progress.loaded_bytes;
    total = progress.total_bytes;
    names.insert(std::string(progress.tensor));
  };
  ASSERT_TRUE(load(file, kWhole, nullptr, options).ok());
  EXPECT_EQ(last, file->tensor_bytes_total());
  EXPECT_EQ(total, last);
  EXPECT_EQ(names.size(), file->tensors().size());
}

TEST_F(WeightsTest, StopWhenTheyAreToldTo) {
  const auto file = open(test::make_base_model());
  std::stop_source stop;
  LoadOptions options;
  options.threads = 2;
  options.stop = stop.get_token();
  options.progress = [&](const LoadProgress&) { stop.request_stop(); };
  const auto weights = load(file, kWhole, nullptr, options);
  ASSERT_FALSE(weights.ok());
  EXPECT_EQ(weights.status().code(), StatusCode::cancelled);
}

TEST_F(WeightsTest, NoticeAFileThatWasCutAfterItWasOpened) {
  const auto file = open(test::make_base_model());
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 2);
  const auto weights = load(file);
  ASSERT_FALSE(weights.ok());
  EXPECT_THAT(weights.status().message(), HasSubstr("model changed on disk"));
}

// Gives bytes from memory, as a transfer would; the file's data is not at hand.
class MemorySource final : public TensorSource {
 public:
  explicit MemorySource(const GgufFile& file) : file_(file) {}

  Status read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out,
              std::stop_token) override {
    if (tensor.name == fails_) return data_loss("the transfer was broken off");
    const auto bytes = file_.tensor_bytes(*file_.find_tensor(tensor.name));
    std::copy_n(bytes.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
    return ok_status();
  }
  void release(const TensorInfo& tensor) override {
    const std::lock_guard lock(mutex_);
    released_.insert(tensor.name);
  }

  std::string fails_;
  std::set<std::string> released_;

 private:
  const GgufFile& file_;
  std::mutex mutex_;
};

TEST_F(WeightsTest, ComeFromAnotherSourceThanTheFile) {
  const auto file = open(test::make_base_model());
  const std::string header = serialize_header(*file);
  const auto alone = GgufFile::from_header(std::as_bytes(std::span(header)), "header");
  ASSERT_TRUE(alone.ok()) << alone.status().to_string();
  EXPECT_FALSE(load(*alone).ok()) << "a header holds no weights";

  MemorySource source(*file);
  const auto weights = load(*alone, kWhole, &source);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  const auto direct = load(file);
  for (const TensorInfo& info : file->tensors()) {
    EXPECT_EQ(bytes_of(*(*weights)->find(info.name)), bytes_of(*(*direct)->find(info.name)));
  }
  EXPECT_EQ(source.released_.size(), file->tensors().size());

  source.fails_ = "blk.1.ffn_up.weight";
  const auto broken = load(*alone, kWhole, &source);
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.status().code(), StatusCode::data_loss);
  EXPECT_THAT(broken.status().message(), HasSubstr("tensor 'blk.1.ffn_up.weight'"));
}

TEST_F(WeightsTest, CostNothingWhenTheyAreMapped) {
  const auto file = open(test::make_base_model());
  LoadOptions options;
  options.mapped = true;
  const auto weights = load(file, kWhole, nullptr, options);
  ASSERT_TRUE(weights.ok()) << weights.status().to_string();
  EXPECT_LT((*weights)->size_bytes(), file->tensor_bytes_total() / 10) << "vectors only";
  const auto copied = load(file);
  for (const TensorInfo& info : file->tensors()) {
    EXPECT_EQ(bytes_of(*(*weights)->find(info.name)), bytes_of(*(*copied)->find(info.name)));
  }
  EXPECT_EQ((*copied)->mapped_bytes(), 0u);
}

// Bytes of address space in which a file is mapped, as the kernel says.
uint64_t mapped_of(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  uint64_t sum = 0;
  std::string line;
  while (std::getline(maps, line)) {
    if (!line.ends_with(path)) continue;
    uint64_t begin = 0;
    uint64_t end = 0;
    EXPECT_EQ(std::sscanf(line.c_str(), "%lx-%lx", &begin, &end), 2) << line;
    sum += end - begin;
  }
  return sum;
}

TEST_F(WeightsTest, OnlyTheirRangesAreMapped) {
  // Large enough for several pages a layer.
  const std::string path = folder_.path() + "/copy.gguf";
  std::filesystem::copy(std::string(STRATA_TEST_DATA) + "/models/llama.gguf", path);
  const std::shared_ptr<GgufFile> file = *GgufFile::open(path);
  EXPECT_EQ(mapped_of(path), 0u) << "the header was copied";
  LoadOptions options;
  options.mapped = true;
  {
    const auto whole = *load(file, {0, 3, true, true}, nullptr, options);
    EXPECT_EQ(mapped_of(path), whole->mapped_bytes());
    EXPECT_GT(whole->mapped_bytes(), file->tensor_bytes_total() * 9 / 10);
  }
  const auto middle = *load(file, {1, 2, false, false}, nullptr, options);
  EXPECT_EQ(mapped_of(path), middle->mapped_bytes());
  uint64_t wanted = 0;
  for (const TensorInfo& info : file->tensors()) {
    if (info.name.starts_with("blk.1.")) wanted += info.size_bytes;
  }
  EXPECT_LT(middle->mapped_bytes(), wanted + 4 * 4096);
  EXPECT_GT(middle->mapped_bytes(), wanted / 2);
}

}  // namespace
}  // namespace strata
