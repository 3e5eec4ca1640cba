// A stage over several devices: layers where they fit, the same answer as on the CPU alone.
//
// Method: simulated accelerators with memory that the host cannot address, beside the real CPU.
// They compute by plain reference ops, so that logits agree to rounding, not in bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends/backends.h"
#include "runtime/device/registry.h"
#include "runtime/model/stage_model.h"
#include "tests/support/simulated_device.h"

namespace strata {
namespace {

using ::testing::HasSubstr;

class DeviceStage : public ::testing::Test {
 protected:
  void open(const char* name) {
    file_ = *GgufFile::open(std::string(STRATA_TEST_DATA) + "/models/" + name + ".gguf");
    hparams_ = *read_hparams(*file_);
    options_.range = {0, hparams_.n_layer, true, true};
    options_.kv.type = DType::f32;
    options_.kv.group_blocks.assign(hparams_.kv_groups.size(), 4);
    options_.max_batch_tokens = 32;
    options_.max_sequences = 1;
    options_.max_context = 64;
    options_.backend.threads = 1;
  }

  // Logits of a prompt of 20 tokens, then of one more.
  std::vector<float> logits(std::vector<Device*> devices) {
    StageOptions options = options_;
    options.devices = std::move(devices);
    auto model = StageModel::load(file_, options);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    std::vector<float> result;
    for (const auto& [begin, count] : {std::pair{0, 20}, {20, 1}}) {
      std::vector<int32_t> positions;
      std::vector<int32_t> tokens;
      for (int32_t i = begin; i < begin + count; ++i) {
        positions.push_back(i);
        tokens.push_back(i * 13 % 300);
      }
      const std::vector<int32_t> sequence(static_cast<size_t>(count), 0);
      const std::vector<int32_t> table = {2, 0, 3, 1};
      BatchSequence tables;
      tables.tables.assign(hparams_.kv_groups.size(), table);
      const std::vector<int32_t> outputs = {count - 1};
      const auto output = (*model)->run({.tokens = tokens,
                                         .activations = {},
                                         .positions = positions,
                                         .sequence = sequence,
                                         .sequences = {&tables, 1},
                                         .outputs = outputs});
      EXPECT_TRUE(output.ok()) << output.status().to_string();
      if (output.ok()) result.insert(result.end(), output->begin(), output->end());
    }
    return result;
  }

  void SetUp() override { ASSERT_TRUE(register_all(registry_, {}).ok()); }
  Device* cpu() { return registry_.devices().front(); }

  DeviceRegistry registry_;
  std::shared_ptr<GgufFile> file_;
  Hparams hparams_;
  StageOptions options_;
};

TEST_F(DeviceStage, GivesTheCpusLogitsOverTwoAcceleratorsAndTheCpu) {
  for (const char* name : {"llama", "gemma3", "mixtral", "gpt2"}) {
    open(name);
    const std::vector<float> expected = logits({cpu()});
    ::strata::testing::SimulatedDevice first({.name = "SIM0", .refused = {}, .wanted = {}});
    ::strata::testing::SimulatedDevice second(
        {.name = "SIM1", .refused = {Op::rms_norm}, .wanted = {}});
    const std::vector<float> found = logits({&first, &second, cpu()});
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 2e-4) << name << ' ' << i;
    }
    EXPECT_GT(first.counters().nodes, 0U);
    EXPECT_GT(second.counters().nodes, 0U);
  }
}

TEST_F(DeviceStage, SaysWhatIsShortWhenNothingFits) {
  open("llama");
  ::strata::testing::SimulatedDevice small(
      {.name = "SIM0", .total_bytes = 100'000, .refused = {}, .wanted = {}});
  ::strata::testing::SimulatedDevice host({.name = "HOST",
                                           .kind = DeviceKind::cpu,
                                           .total_bytes = 200'000,
                                           .refused = {},
                                           .wanted = {},
                                           .host_memory = true});
  StageOptions options = options_;
  options.devices = {&small, &host};
  const auto model = StageModel::load(file_, options);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::resource_exhausted);
  EXPECT_THAT(model.status().message(), HasSubstr("is short by"));
}

}  // namespace
}  // namespace strata
