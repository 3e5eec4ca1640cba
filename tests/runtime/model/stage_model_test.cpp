// StageModel: batches in, logits or the residual stream out; refusals; what it costs.
#include "runtime/model/stage_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <chrono>
#include <filesystem>
#include <numeric>

#include "backends/backends.h"
#include "runtime/base/guarded_mapping.h"
#include "tests/support/process_memory.h"
#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string model_path(const char* name) {
  return std::string(STRATA_TEST_DATA) + "/models/" + name + ".gguf";
}

class StageModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(register_all(devices_, {}).ok());
    open("llama");
  }

  void open(const char* name) {
    file_ = *GgufFile::open(model_path(name));
    hparams_ = *read_hparams(*file_);
    options_.range = {0, hparams_.n_layer, true, true};
    options_.kv.type = DType::f32;
    options_.kv.group_blocks.assign(hparams_.kv_groups.size(), 16);
    options_.max_batch_tokens = 64;
    options_.max_sequences = 4;
    options_.max_context = 128;
    options_.devices = devices_.devices();
    options_.backend.threads = 1;
  }

  std::unique_ptr<StageModel> load() {
    auto model = StageModel::load(file_, options_);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return model.ok() ? std::move(*model) : nullptr;
  }

  // What compute_bytes() has beside the tensors of the largest batch and the workspace.
  uint64_t kept_graphs_bytes_of(const StageModel& model) const {
    const StageEstimate estimate = StageModel::estimate(*file_, options_).value();
    EXPECT_EQ(estimate.compute, model.compute_bytes());
    return model.kept_graphs_bytes();
  }

  DeviceRegistry devices_;
  std::shared_ptr<GgufFile> file_;
  Hparams hparams_;
  StageOptions options_;
};

// One sequence's tokens [begin, begin + count) of a fixed text, with blocks of its own.
struct TestBatch {
  TestBatch(const Hparams& hparams, int32_t begin, int32_t count, std::vector<int32_t> blocks)
      : table(std::move(blocks)) {
    for (int32_t i = begin; i < begin + count; ++i) {
      tokens.push_back((i * 31 + 5) % hparams.n_vocab);
      positions.push_back(i);
      sequence.push_back(0);
    }
    outputs = {count - 1};
    sequences.resize(1);
    sequences[0].tables.assign(hparams.kv_groups.size(), table);
  }
  StageBatch batch() const {
    return {.tokens = tokens,
            .activations = {},
            .positions = positions,
            .sequence = sequence,
            .sequences = sequences,
            .outputs = outputs};
  }

  std::vector<int32_t> table;
  std::vector<int32_t> tokens;
  std::vector<int32_t> positions;
  std::vector<int32_t> sequence;
  std::vector<int32_t> outputs;
  std::vector<BatchSequence> sequences;
};

std::vector<float> run(StageModel& model, const StageBatch& batch) {
  const auto output = model.run(batch);
  EXPECT_TRUE(output.ok()) << output.status().to_string();
  return output.ok() ? std::vector<float>(output->begin(), output->end()) : std::vector<float>();
}

TEST_F(StageModelTest, DecodingBuildsNoGraph) {
  const auto model = load();
  run(*model, TestBatch(hparams_, 0, 30, {0, 1, 2, 3, 4}).batch());
  run(*model, TestBatch(hparams_, 30, 1, {0, 1, 2, 3, 4}).batch());
  const uint64_t built = model->graphs_built();
  for (int32_t i = 31; i < 60; ++i) {
    const auto logits = run(*model, TestBatch(hparams_, i, 1, {0, 1, 2, 3, 4}).batch());
    EXPECT_EQ(logits.size(), static_cast<size_t>(hparams_.n_vocab));
  }
  EXPECT_EQ(model->graphs_built(), built);
}

#if defined(__GLIBC__)
// Sixty shapes of batches, of which the last 32 are kept: what the process has taken for them is
// what compute_bytes() counts or a little less, and grows no more; also with the number of tokens.
TEST_F(StageModelTest, WhatIsKeptForGraphsIsBoundedAndCounted) {
  if (test::under_sanitizer()) GTEST_SKIP() << "a sanitizer's own memory counts";
  for (const char* name : {"llama", "mixtral"}) {
    open(name);
    const auto model = load();
    const std::vector<int32_t> blocks = {0, 1, 2, 3, 4};
    run(*model, TestBatch(hparams_, 0, 64, blocks).batch());  // the result's memory is there
    const uint64_t counted = kept_graphs_bytes_of(*model);
    const auto in_use = [] { return static_cast<int64_t>(::mallinfo2().uordblks); };
    const int64_t before = in_use();
    for (int32_t n = 1; n <= 32; ++n) run(*model, TestBatch(hparams_, 0, n, blocks).batch());
    const int64_t kept = in_use() - before;
    EXPECT_LE(kept, static_cast<int64_t>(counted)) << name;
    EXPECT_GE(kept, static_cast<int64_t>(counted) / 2) << name;
    for (int32_t n = 33; n <= 63; ++n) run(*model, TestBatch(hparams_, 0, n, blocks).batch());
    EXPECT_LE(in_use() - before, kept + kept / 20) << name;
    EXPECT_EQ(model->graphs_built(), 64u);
  }
}
#endif

TEST_F(StageModelTest, WhichBlocksHoldASequenceChangesNothing) {
  const auto model = load();
  model->kv_cache().fill(std::byte{0xff});  // NaN: nothing stale may be read
  const auto expected = run(*model, TestBatch(hparams_, 0, 50, {0, 1, 2, 3}).batch());
  model->kv_cache().fill(std::byte{0xff});
  EXPECT_EQ(run(*model, TestBatch(hparams_, 0, 50, {9, 3, 15, 7}).batch()), expected);
}

TEST_F(StageModelTest, ACopiedBlockServesAsTheFirst) {
  const auto model = load();
  run(*model, TestBatch(hparams_, 0, 16, {0}).batch());
  ASSERT_TRUE(model->kv_cache().copy({.group = 0, .from = 0, .to = 5}).ok());
  const auto expected = run(*model, TestBatch(hparams_, 16, 4, {0, 1}).batch());
  EXPECT_EQ(run(*model, TestBatch(hparams_, 16, 4, {5, 2}).batch()), expected);
  const Status beyond = model->kv_cache().copy({.group = 0, .from = 0, .to = 16});
  EXPECT_THAT(beyond.message(), HasSubstr("has 16 blocks"));
  EXPECT_FALSE(model->kv_cache().copy({.group = 1, .from = 0, .to = 1}).ok());
}

// A window of 24 needs the last blocks only; the rest of the table may be given up.
TEST_F(StageModelTest, BlocksBeforeTheWindowAreNotNeeded) {
  open("gemma3");
  const auto model = load();
  const std::vector<int32_t> all = {0, 1, 2, 3, 4};
  run(*model, TestBatch(hparams_, 0, 64, all).batch());
  const auto expected = run(*model, TestBatch(hparams_, 64, 1, all).batch());
  TestBatch late(hparams_, 64, 1, all);
  const std::vector<int32_t> window = {-1, -1, 2, 3, 4};
  late.sequences[0].tables[0] = window;
  EXPECT_EQ(run(*model, late.batch()), expected);
  late.sequences[0].tables[1] = window;
  const auto refused = model->run(late.batch());
  EXPECT_THAT(refused.status().message(), HasSubstr("KV group 1 at table entry 0"));
}

TEST_F(StageModelTest, AnEmptyBatchGivesNothing) {
  const auto model = load();
  EXPECT_TRUE(run(*model, {}).empty());
  TestBatch silent(hparams_, 0, 5, {0});
  silent.outputs.clear();
  EXPECT_TRUE(run(*model, silent.batch()).empty());
}

TEST_F(StageModelTest, RefusesWhatIsOutOfRange) {
  const auto model = load();
  const auto error = [&](const auto& change) {
    TestBatch batch(hparams_, 0, 5, {0});
    change(batch);
    return model->run(batch.batch()).status().to_string();
  };
  EXPECT_THAT(error([](TestBatch& b) { b.tokens[2] = 384; }),
              HasSubstr("token id 384 is outside the vocabulary of 384"));
  EXPECT_THAT(error([](TestBatch& b) { b.tokens[0] = -1; }), HasSubstr("token id -1"));
  EXPECT_THAT(error([](TestBatch& b) { b.tokens.pop_back(); }),
              HasSubstr("4 token ids for 5 positions"));
  EXPECT_THAT(error([](TestBatch& b) { b.positions[4] = 128; }),
              HasSubstr("position 128 is outside the context of 128"));
  EXPECT_THAT(error([](TestBatch& b) { b.positions[4] = 16; }), HasSubstr("table entry 1"));
  EXPECT_THAT(error([](TestBatch& b) { b.sequence[1] = 1; }), HasSubstr("the batch has 1"));
  EXPECT_THAT(error([](TestBatch& b) { b.outputs = {5}; }), HasSubstr("output index 5"));
  EXPECT_THAT(error([](TestBatch& b) { b.outputs = {3, 2}; }), HasSubstr("ascending"));
  const std::vector<int32_t> beyond = {16};
  EXPECT_THAT(error([&](TestBatch& b) { b.sequences[0].tables[0] = beyond; }),
              HasSubstr("none of the 16 blocks"));
  EXPECT_THAT(error([](TestBatch& b) { b.sequences[0].tables.clear(); }),
              HasSubstr("the model has 1"));
  const TestBatch large(hparams_, 0, 65, {0, 1, 2, 3, 4});
  EXPECT_THAT(model->run(large.batch()).status().message(),
              HasSubstr("65 tokens in a batch, at most 64"));
}

TEST_F(StageModelTest, RefusesActivationsOfAnotherSize) {
  options_.range = {1, 3, false, true};
  const auto model = load();
  TestBatch batch(hparams_, 0, 2, {0});
  const std::vector<float> activations(127);
  StageBatch view = batch.batch();
  view.activations = activations;
  EXPECT_THAT(model->run(view).status().message(),
              AllOf(HasSubstr("127 values"), HasSubstr("make 256")));
}

TEST_F(StageModelTest, RefusesOptionsThatMakeNoSense) {
  const auto error = [&](const auto& change) {
    StageOptions options = options_;
    change(options);
    return StageModel::load(file_, options).status().to_string();
  };
  EXPECT_THAT(error([](StageOptions& o) {
                o.range = {2, 1, false, false};
              }),
              HasSubstr("layers [2, 1) of a model with 3"));
  EXPECT_THAT(error([](StageOptions& o) { o.range.end = INT32_MAX; }), HasSubstr("with 3"));
  EXPECT_THAT(error([](StageOptions& o) {
                o.range = {1, 1, false, false};
              }),
              HasSubstr("without layers"));
  EXPECT_THAT(error([](StageOptions& o) { o.kv.type = DType::q6_k; }), HasSubstr("KV type Q6_K"));
  EXPECT_THAT(error([](StageOptions& o) { o.kv.group_blocks = {0}; }), HasSubstr("0 KV blocks"));
  EXPECT_THAT(error([](StageOptions& o) {
                o.kv.group_blocks = {1, 1};
              }),
              HasSubstr("for 2 KV groups, the model has 1"));
  EXPECT_THAT(error([](StageOptions& o) { o.max_context = 0; }), HasSubstr("max_context is 0"));
  EXPECT_THAT(error([](StageOptions& o) { o.devices.clear(); }), HasSubstr("without a device"));
  open("gpt2");
  EXPECT_THAT(error([](StageOptions& o) { o.max_context = 257; }),
              HasSubstr("max_context is 257, must be 1 to 256"));
}

// With weights in the mapped file: the same bits, and an error as soon as the file is another.
TEST_F(StageModelTest, AFileThatIsCutOffWhileItIsMappedIsAnError) {
  ASSERT_TRUE(install_mapping_guard().ok());
  const auto expected = run(*load(), TestBatch(hparams_, 0, 20, {0, 1}).batch());
  const test::TempDir folder;
  const std::string path = folder.path() + "/m.gguf";
  for (const uint64_t left : {uint64_t{0}, uint64_t{100'000}, UINT64_MAX}) {
    std::filesystem::copy(model_path("llama"), path,
                          std::filesystem::copy_options::overwrite_existing);
    file_ = *GgufFile::open(path);
    options_.load.mapped = true;
    const auto model = load();
    EXPECT_EQ(run(*model, TestBatch(hparams_, 0, 20, {0, 1}).batch()), expected);
    if (left == UINT64_MAX) {  // as long as before, but written anew
      std::filesystem::last_write_time(
          path, std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    } else {
      std::filesystem::resize_file(path, left);
    }
    for (int again = 0; again < 2; ++again) {
      const auto output = model->run(TestBatch(hparams_, 0, 20, {0, 1}).batch());
      ASSERT_FALSE(output.ok()) << left;
      EXPECT_EQ(output.status().code(), StatusCode::failed_precondition);
      EXPECT_THAT(output.status().message(), HasSubstr("model changed on disk"));
    }
  }
}

TEST_F(StageModelTest, IsEstimatedExactly) {
  for (const char* name : {"llama", "gemma3", "mixtral", "gpt2"}) {
    open(name);
    const auto estimate = StageModel::estimate(*file_, options_);
    ASSERT_TRUE(estimate.ok()) << estimate.status().to_string();
    const auto model = load();
    EXPECT_EQ(std::accumulate(estimate->layer_kv.begin(), estimate->layer_kv.end(), uint64_t{0}),
              model->kv_cache().size_bytes())
        << name;
    EXPECT_EQ(estimate->input_weights + estimate->output_weights +
                  std::accumulate(estimate->layer_weights.begin(), estimate->layer_weights.end(),
                                  uint64_t{0}),
              model->weights_bytes())
        << name;
    EXPECT_EQ(estimate->compute, model->compute_bytes()) << name;
  }
  options_.load.mapped = true;
  const auto mapped = StageModel::estimate(*file_, options_);
  EXPECT_EQ(
      mapped->total(), load()->weights_bytes() + mapped->compute + [&] {
        return std::accumulate(mapped->layer_kv.begin(), mapped->layer_kv.end(), uint64_t{0});
      }());
}

}  // namespace
}  // namespace strata
