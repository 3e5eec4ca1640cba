// Goal: a digest depends on what the model is, never on how it is stored or computed.
#include "runtime/gguf/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "runtime/base/digest.h"
#include "runtime/gguf/digest_file_cache.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using test::GgufWriter;
using test::make_base_model;
using test::TempDir;
using ::testing::HasSubstr;

std::shared_ptr<GgufFile> open(const TempDir& dir, const GgufWriter& writer) {
  return GgufFile::open(dir.write("model.gguf", writer.build())).value();
}

std::string model_digest(const GgufWriter& writer) {
  const TempDir dir;
  return compute_digest(*open(dir, writer)).value().model;
}

TEST(Digest, TensorsAreHashedAsTheyLieInTheFile) {
  const TempDir dir;
  const GgufWriter writer = make_base_model();
  const auto model = open(dir, writer);
  const ModelDigest digest = compute_digest(*model, {.threads = 1}).value();
  ASSERT_EQ(digest.tensors.size(), writer.tensors.size());
  for (size_t i = 0; i < digest.tensors.size(); ++i) {
    EXPECT_EQ(digest.tensors[i], sha256_hex(std::as_bytes(std::span(writer.tensors[i].data))));
  }
  EXPECT_TRUE(is_digest(digest.model));
  EXPECT_THAT(digest.manifest, ::testing::StartsWith("blk.0.attn_k.weight\tF32\t{32, 16}\t"));
}

TEST(Digest, ThreadsAndCacheChangeNothing) {
  class Cache : public DigestCache {
   public:
    std::optional<std::vector<std::string>> find(std::span<const FileIdentity> files) override {
      if (!kept_ || std::vector(files.begin(), files.end()) != files_) return std::nullopt;
      ++hits;
      return kept_;
    }
    void store(std::span<const FileIdentity> files,
               const std::vector<std::string>& digests) override {
      files_.assign(files.begin(), files.end());
      kept_ = digests;
    }
    int hits = 0;

   private:
    std::vector<FileIdentity> files_;
    std::optional<std::vector<std::string>> kept_;
  };
  const TempDir dir;
  const auto model = open(dir, make_base_model());
  const ModelDigest one = compute_digest(*model).value();
  Cache cache;
  for (const int threads : {1, 2, 5}) {
    const ModelDigest again = compute_digest(*model, {.threads = threads, .cache = &cache}).value();
    EXPECT_EQ(again.model, one.model);
    EXPECT_EQ(again.tensors, one.tensors);
  }
  EXPECT_EQ(cache.hits, 2);
}

// What a disk has damaged or cut short is not there, wherever the damage is: else the model would
// be taken for another one until somebody removes the file.
TEST(DigestFileCache, GivesNothingThatIsDamaged) {
  const TempDir dir;
  DigestFileCache cache(dir.path() + "/digests");
  const std::vector<FileIdentity> files = {{1, 2, 3, 4}};
  const std::vector<std::string> digests = {sha256_hex("a"), sha256_hex("b")};
  cache.store(files, digests);
  ASSERT_EQ(cache.find(files), digests);
  const std::string path =
      std::filesystem::directory_iterator(dir.path() + "/digests")->path().string();
  std::ifstream in(path);
  const std::string whole{std::istreambuf_iterator<char>(in), {}};
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string text = whole;
    text[i] = text[i] == 'a' ? 'b' : 'a';
    std::ofstream(path) << text;
    EXPECT_FALSE(cache.find(files)) << i;
    std::ofstream(path) << whole.substr(0, i);
    EXPECT_EQ(cache.find(files).has_value(), i + 1 == whole.size()) << i;  // the last line's end
  }
  std::ofstream(path) << whole;
  EXPECT_EQ(cache.find(files), digests);
}

TEST(Digest, DoesNotDependOnTheLayoutButOnEveryValue) {
  const std::string digest = model_digest(make_base_model());
  GgufWriter other = make_base_model();
  other.set_u32("general.alignment", 64);
  other.alignment = 64;
  std::swap(other.metadata[0], other.metadata[3]);
  std::swap(other.tensors[0], other.tensors[5]);
  other.version = 2;
  EXPECT_EQ(model_digest(other), digest);

  GgufWriter data = make_base_model();
  data.tensors[3].data[17] ^= 1;
  EXPECT_NE(model_digest(data), digest);
  GgufWriter key = make_base_model();
  key.set_f32("llama.rope.freq_base", 10001.0F);
  EXPECT_NE(model_digest(key), digest);
  GgufWriter shape = make_base_model();
  shape.tensor("blk.0.attn_k.weight").ne = {16, 32};
  EXPECT_NE(model_digest(shape), digest);
}

TEST(Digest, ReportsProgressAndStopsWhenAsked) {
  const TempDir dir;
  const auto model = open(dir, make_base_model());
  uint64_t last = 0;
  DigestOptions options;
  options.progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GT(done, last);
    EXPECT_LE(done, total);
    last = done;
  };
  ASSERT_TRUE(compute_digest(*model, options).ok());
  EXPECT_EQ(last, model->tensor_bytes_total());

  std::stop_source source;
  source.request_stop();
  options.progress = {};
  options.stop = source.get_token();
  EXPECT_EQ(compute_digest(*model, options).status().code(), StatusCode::cancelled);
}

TEST(Digest, AChangedFileIsAnErrorAndNotASignal) {
  const TempDir dir;
  const auto model = open(dir, make_base_model());
  std::filesystem::resize_file(dir.path() + "/model.gguf", 5000);
  EXPECT_THAT(compute_digest(*model, {.threads = 3}).status().message(),
              HasSubstr("model changed on disk"));
}

TEST(Digest, AHeaderAloneHasNone) {
  const TempDir dir;
  const std::string header = serialize_header(*open(dir, make_base_model()));
  const auto copy = GgufFile::from_header(std::as_bytes(std::span(header)), "header").value();
  EXPECT_EQ(compute_digest(*copy).status().code(), StatusCode::failed_precondition);
}

TEST(Digest, OnlySixtyFourLowerCaseDigitsAreOne) {
  const std::string good(64, 'a');
  EXPECT_TRUE(is_digest(good));
  EXPECT_FALSE(is_digest(good.substr(1)));
  EXPECT_FALSE(is_digest(good + "a"));
  EXPECT_FALSE(is_digest(std::string(64, 'A')));
  EXPECT_FALSE(is_digest("../../" + good.substr(6)));
  EXPECT_FALSE(is_digest(""));
}

}  // namespace
}  // namespace strata
