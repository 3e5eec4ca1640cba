// What the planner promises is what a worker then loads: for capped workers and several contexts, a
// plan is made or says what is short, and no stage of a plan needs more than its worker may use.
//
// Method: tiny models of tests/data, and SmolLM2 with the caps of 60, 90 and 120 MB where it is
// there; the worker's own count (StageModel::estimate) judges the plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "backends/backends.h"
#include "coordinator/planner/planner.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kStepTokens = 64;
constexpr uint32_t kSlots = 4;

class PlanMemory : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(register_all(devices_, {}).ok()); }

  // How many of the contexts could be planned; each stage of each plan is counted again.
  int plan_all(const std::string& path, const std::vector<uint64_t>& caps,
               const std::vector<uint32_t>& contexts, DType kv_type) {
    const std::shared_ptr<GgufFile> file = GgufFile::open(path).value();
    int planned = 0;
    for (const uint32_t context : contexts) {
      const ModelProfile profile = profile_model(*file, {.kv_type = kv_type,
                                                         .step_tokens = kStepTokens,
                                                         .slots = kSlots,
                                                         .context = context,
                                                         .devices = devices_.devices()})
                                       .value();
      std::vector<PlannerNode> nodes;
      for (const uint64_t cap : caps) {
        nodes.push_back({.name = "worker-" + std::to_string(nodes.size() + 1),
                         .device = "CPU",
                         .memory_bytes = cap});
      }
      PlanOptions options;
      options.context = context;
      options.step_tokens = kStepTokens;
      const auto plan = make_plan(profile, nodes, options);
      if (!plan.ok()) {
        EXPECT_EQ(plan.status().code(), StatusCode::resource_exhausted);
        EXPECT_THAT(plan.status().message(), HasSubstr("short by"));
        EXPECT_FALSE(plan.status().hint().empty());
        continue;
      }
      ++planned;
      for (const PlannedStage& stage : plan->stages) {
        const uint64_t need = worker_need(*file, *plan, stage, kv_type);
        EXPECT_LE(need, stage.need.total()) << path << ", " << layer_range_text(stage.range);
        EXPECT_LE(need, caps[stage.node]) << path << ", " << layer_range_text(stage.range);
      }
    }
    return planned;
  }

  DeviceRegistry devices_;

 private:
  uint64_t worker_need(const GgufFile& file, const Plan& plan, const PlannedStage& stage,
                       DType kv_type) {
    StageOptions options;
    options.range = stage.range;
    options.kv.type = kv_type;
    options.kv.group_blocks.assign(plan.group_blocks.begin(), plan.group_blocks.end());
    options.max_batch_tokens = kStepTokens;
    options.max_sequences = kSlots;
    options.max_context = static_cast<int32_t>(plan.context);
    options.devices = devices_.devices();
    options.backend.threads = 8;
    return StageModel::estimate(file, options).value().total();
  }
};

TEST_F(PlanMemory, HoldsForTinyModels) {
  for (const char* name : {"llama", "gemma3", "qwen3", "gpt2", "mixtral", "llama-tied"}) {
    const std::string path = std::string(STRATA_TEST_DATA) + "/models/" + name + ".gguf";
    int planned = 0;
    for (const uint64_t cap : {400'000u, 900'000u, 1'500'000u, 12'000'000u}) {
      planned += plan_all(path, {cap, cap * 3 / 2, cap * 2}, {64, 128, 256}, DType::f32);
    }
    EXPECT_GE(planned, 3) << name;
    EXPECT_LT(planned, 12) << name;
  }
}

TEST_F(PlanMemory, HoldsForSmolLm2OnThreeCappedWorkers) {
  const char* folder = std::getenv("STRATA_MODELS_DIR");
  if (folder == nullptr) GTEST_SKIP() << "STRATA_MODELS_DIR is not set";
  const std::string path = std::string(folder) + "/smollm2.gguf";
  if (!GgufFile::open(path).ok()) GTEST_SKIP() << path << " is not there";
  constexpr uint64_t kMB = 1'000'000;
  EXPECT_GE(plan_all(path, {60 * kMB, 90 * kMB, 120 * kMB}, {512, 2048, 8192}, DType::f16), 1);
}

}  // namespace
}  // namespace strata::coordinator
