// Equal bits of whole models, however they are run.
//
// Method: SHA-256 over the logits of all positions of four sequences, run plainly, is compared with
// that of the same model cut at every layer, in chunks of 1 to 512 tokens, alone and beside others,
// on 1 to 4 threads, on every vector path and from the mapped file. Tiny models of each
// architecture and weight type, and SmolLM2 where STRATA_MODELS_DIR names its folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "backends/cpu/isa.h"
#include "tests/support/model_runner.h"

namespace strata::test {
namespace {

using Digests = std::vector<std::string>;

// Lengths on both sides of KV blocks, attention tiles and chunks.
Sequences test_sequences(std::vector<size_t> lengths) {
  Sequences sequences;
  for (const size_t length : lengths) {
    std::vector<int32_t>& ids = sequences.emplace_back();
    for (size_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<int32_t>((i * 37 + length * 11 + i * i) % 331));
    }
  }
  return sequences;
}

Digests digests(const std::string& path, const Sequences& sequences, const RunSetup& setup) {
  const auto found = logits_digests(path, sequences, setup);
  EXPECT_TRUE(found.ok()) << found.status().to_string();
  return found.ok() ? *found : Digests();
}

class ModelBits : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = std::string(STRATA_TEST_DATA) + "/" + GetParam() + ".gguf";
    expected_ = digests(path_, sequences_, {});
    ASSERT_EQ(expected_.size(), sequences_.size());
    auto hparams = read_hparams(**GgufFile::open(path_));
    n_layer_ = hparams->n_layer;
  }

  std::string path_;
  const Sequences sequences_ = test_sequences({1, 33, 64, 117});
  Digests expected_;
  int32_t n_layer_ = 0;
};

TEST_P(ModelBits, AreEqualForEveryCutOfTheLayers) {
  for (int32_t cut = 0; cut <= n_layer_; ++cut) {
    RunSetup setup;
    setup.split = {cut, n_layer_ - cut};  // 0 layers: the embedding or the head alone
    EXPECT_EQ(digests(path_, sequences_, setup), expected_) << "cut before layer " << cut;
  }
  RunSetup finest;
  finest.split.assign(static_cast<size_t>(n_layer_), 1);
  finest.split.push_back(0);
  EXPECT_EQ(digests(path_, sequences_, finest), expected_) << "one layer a stage, head alone";
}

TEST_P(ModelBits, AreEqualForEveryChunk) {
  for (const uint32_t chunk : {1U, 2U, 5U, 16U, 17U, 63U, 64U, 512U}) {
    RunSetup setup;
    setup.chunk = chunk;
    EXPECT_EQ(digests(path_, sequences_, setup), expected_) << "chunks of " << chunk;
  }
}

TEST_P(ModelBits, AreEqualAloneAndBesideOthers) {
  for (const uint32_t batch : {2U, 3U, 4U}) {
    for (const uint32_t chunk : {1U, 24U, 128U}) {
      RunSetup setup;
      setup.batch = batch;
      setup.chunk = chunk;
      EXPECT_EQ(digests(path_, sequences_, setup), expected_)
          << batch << " sequences in chunks of " << chunk;
    }
  }
}

TEST_P(ModelBits, AreEqualForEveryNumberOfThreads) {
  for (const int threads : {1, 2, 3, 4}) {
    RunSetup setup;
    setup.threads = threads;
    EXPECT_EQ(digests(path_, sequences_, setup), expected_) << threads << " threads";
  }
}

TEST_P(ModelBits, AreEqualOnEveryVectorPath) {
  for (const cpu::Isa isa : cpu::available_isas()) {
    RunSetup setup;
    setup.isa = cpu::isa_name(isa);
    EXPECT_EQ(digests(path_, sequences_, setup), expected_) << setup.isa;
  }
}

TEST_P(ModelBits, AreEqualFromTheMappedFile) {
  RunSetup setup;
  setup.mapped = true;
  EXPECT_EQ(digests(path_, sequences_, setup), expected_);
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (c == '-' || c == '/') c = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, ModelBits,
                         testing::Values("models/llama", "models/mixtral", "models/qwen3",
                                         "models/gemma3", "models/gpt2", "quants/llama-F16",
                                         "quants/llama-Q4_K_M", "quants/llama-Q5_1",
                                         "quants/mixtral-Q4_0", "quants/qwen3-256-Q4_K_M"),
                         test_name);

// The text of SmolLM2 is the same one, so a few paths at once suffice.
TEST(SmolLm2Bits, AreEqualHoweverItIsRun) {
  const char* folder = std::getenv("STRATA_MODELS_DIR");
  if (folder == nullptr) GTEST_SKIP() << "STRATA_MODELS_DIR is not set";
  const std::string path = std::string(folder) + "/smollm2.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const Sequences sequences = test_sequences({1, 17, 70});
  const Digests expected = digests(path, sequences, {});
  std::vector<RunSetup> setups(6);
  setups[0].split = {10, 12, 8};
  setups[1].split = {6, 6, 6, 6, 6, 0};
  setups[1].chunk = 9;
  setups[2].chunk = 1;
  setups[2].batch = 3;
  setups[3].threads = 1;
  setups[3].isa = "avx2";
  setups[4].threads = 4;
  setups[4].isa = "scalar";
  setups[4].split = {0, 30};
  setups[5].mapped = true;
  setups[5].chunk = 512;
  setups[5].batch = 2;
  for (size_t i = 0; i < setups.size(); ++i) {
    EXPECT_EQ(digests(path, sequences, setups[i]), expected) << "setup " << i;
  }
}

// Every length to 40, around 128 tokens and beside powers of two, in one chunk and token by token,
// four side by side.
TEST(PromptLengthBits, AreThoseOfDecodingTokenByToken) {
  const std::string path = std::string(STRATA_TEST_DATA) + "/quants/llama-Q4_0.gguf";
  std::vector<size_t> lengths;
  for (size_t n = 1; n <= 40; ++n) lengths.push_back(n);
  for (size_t n = 120; n <= 140; ++n) lengths.push_back(n);
  for (const size_t power : {64, 256, 512}) {
    for (size_t n = power - 1; n <= power + 1; ++n) lengths.push_back(n);
  }
  const Sequences sequences = test_sequences(lengths);
  RunSetup at_once;
  at_once.chunk = 512;
  RunSetup by_token;
  by_token.chunk = 1;
  by_token.batch = 4;
  EXPECT_EQ(digests(path, sequences, at_once), digests(path, sequences, by_token));
}

// What one KV type gives must not depend on the path either; only F32 is near the reference.
TEST(QuantisedKvBits, AreEqualForChunksAndSplits) {
  const std::string path = std::string(STRATA_TEST_DATA) + "/models/llama.gguf";
  const Sequences sequences = test_sequences({45, 100});
  for (const DType type : {DType::f16, DType::q8_0, DType::q4_0}) {
    RunSetup plain;
    plain.kv_type = type;
    const Digests expected = digests(path, sequences, plain);
    EXPECT_NE(expected, digests(path, sequences, {})) << "the type has an effect";
    RunSetup other = plain;
    other.chunk = 3;
    other.batch = 2;
    other.threads = 3;
    other.split = {1, 1, 1};
    EXPECT_EQ(digests(path, sequences, other), expected) << dtype_name(type);
  }
}

}  // namespace
}  // namespace strata::test
