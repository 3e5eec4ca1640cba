// Layer assignment: ratios, exact accounting, overflow to the host, and what the error says.
#include "runtime/model/layer_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Ints = std::vector<int>;

constexpr uint64_t kMiB = 1 << 20;

TEST(SplitByRatios, StaysWithinOneOfEveryShare) {
  for (const std::vector<double>& ratios : {std::vector<double>{0.49, 0.51},
                                            {1, 2, 4},
                                            {1, 100},
                                            {1},
                                            {1, 1, 1, 1, 1, 1, 1},
                                            {3, 0, 5}}) {
    for (int count = 0; count <= 40; ++count) {
      const Ints counts = split_by_ratios(count, ratios).value();
      const double sum = std::accumulate(ratios.begin(), ratios.end(), 0.0);
      for (size_t i = 0; i < ratios.size(); ++i) {
        EXPECT_LE(std::abs(counts[i] - count * ratios[i] / sum), 1.0);
      }
      EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), 0), count);
    }
  }
  EXPECT_THAT(split_by_ratios(30, std::vector{0.49, 0.51}).value(), ElementsAre(15, 15));
  EXPECT_THAT(split_by_ratios(30, std::vector{1.0, 2.0, 4.0}).value(), ElementsAre(4, 9, 17));
  EXPECT_THAT(split_by_ratios(30, std::vector{1.0, 100.0}).value(), ElementsAre(0, 30));
}

TEST(SplitByRatios, TakesOddButMeaningfulRatios) {
  EXPECT_THAT(split_by_ratios(30, std::vector{0.0, 1.0}).value(), ElementsAre(0, 30));
  EXPECT_THAT(split_by_ratios(30, std::vector{1.0, 0.0}).value(), ElementsAre(30, 0));
  EXPECT_THAT(split_by_ratios(30, std::vector{1e-30, 1.0}).value(), ElementsAre(0, 30));
  EXPECT_THAT(split_by_ratios(30, std::vector{1.0, 1e-300}).value(), ElementsAre(30, 0));
}

TEST(SplitByRatios, RefusesTheOthers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& ratios :
       {std::vector<double>{}, {0, 0}, {1, -1}, {nan, 1}, {infinity, 1}, {1e308, 1e308}, {-0.5}}) {
    EXPECT_EQ(split_by_ratios(30, ratios).status().code(), StatusCode::invalid_argument);
  }
  EXPECT_EQ(split_by_ratios(30, std::vector{1.0, -1.0}).status().message(),
            "ratio -1 among 1:-1: each must be a number from 0 on");
  EXPECT_EQ(split_by_ratios(30, std::vector{0.0, 0.0}).status().message(),
            "the ratios 0:0 have no usable sum: give a device a share");
}

// 30 layers of 2 MiB weights and 1 MiB KV, a tied table of 28 MiB, compute 4 MiB.
ModelMemory small_model() {
  ModelMemory model;
  model.layers.assign(30, {2 * kMiB, 1 * kMiB});
  model.tied = true;
  model.embedding_bytes = 28 * kMiB;
  model.output_norm_bytes = 4096;
  model.shared_bytes = 256;
  model.compute_bytes = 4 * kMiB;
  model.input_compute_bytes = kMiB;
  model.output_compute_bytes = 2 * kMiB;
  model.context_positions = 2048;
  return model;
}

AssignableDevice gpu(std::string name, uint64_t free_mib) {
  return {std::move(name), DeviceKind::gpu, free_mib * kMiB, free_mib * kMiB, ""};
}
AssignableDevice host(uint64_t free_mib) {
  return {"CPU", DeviceKind::cpu, free_mib * kMiB, 2 * free_mib * kMiB, ""};
}

Ints layer_counts(const LayerAssignment& assignment) {
  Ints counts(assignment.accounts.size());
  for (const int device : assignment.layer_devices) ++counts[static_cast<size_t>(device)];
  return counts;
}

TEST(LayerAssignment, KeepsAllOnTheHostWithoutAccelerators) {
  const LayerAssignment result = assign_layers({small_model(), {host(200)}, {}}).value();
  EXPECT_EQ(layer_counts(result), Ints{30});
  EXPECT_EQ(result.head_device, 0);
  const DeviceAccount& account = result.accounts[0];
  // The tied table is there once.
  EXPECT_EQ(account.weights_bytes(), 60 * kMiB + 28 * kMiB + 4096 + 256);
  EXPECT_EQ(account.kv_bytes(), 30 * kMiB);
  EXPECT_EQ(account.compute_bytes, 7 * kMiB);
}

TEST(LayerAssignment, FillsDevicesToTheSamePart) {
  const LayerAssignment result =
      assign_layers({small_model(), {gpu("A", 300), gpu("B", 300), host(100)}, {}}).value();
  EXPECT_EQ(result.head_device, 1);
  const Ints counts = layer_counts(result);
  EXPECT_EQ(counts[0] + counts[1], 30);
  // A: layers; B: layers and a copy of the table. About equal bytes.
  const auto needed = [&](size_t d) {
    return static_cast<double>(result.accounts[d].needed_bytes());
  };
  EXPECT_LE(std::abs(needed(0) - needed(1)), 6.0 * kMiB);
  EXPECT_EQ(result.accounts[1].output_bytes, 28 * kMiB + 4096);
  EXPECT_EQ(result.accounts[2].weights_bytes(), 28 * kMiB);
  EXPECT_EQ(result.accounts[2].compute_bytes, kMiB);
  EXPECT_EQ(result.accounts[0].shared_bytes, 256u);
}

TEST(LayerAssignment, LeavesTheFirstLayersToTheHostWhenDevicesAreFull) {
  const LayerAssignment result =
      assign_layers({small_model(), {gpu("A", 40), gpu("B", 70), host(200)}, {}}).value();
  const Ints counts = layer_counts(result);
  EXPECT_GT(counts[2], 0);
  EXPECT_EQ(result.layer_devices.front(), 2);
  EXPECT_EQ(result.layer_devices.back(), 1);
  EXPECT_EQ(result.head_device, 1);
  for (const DeviceAccount& account : result.accounts) EXPECT_EQ(account.short_bytes(), 0u);
  // One more layer would not have fitted.
  EXPECT_LT(result.accounts[0].free_bytes - result.accounts[0].needed_bytes(), 3 * kMiB);
}

TEST(LayerAssignment, FollowsRatios) {
  const std::vector<AssignableDevice> devices = {gpu("A", 300), gpu("B", 300), host(100)};
  const LayerAssignment result = assign_layers({small_model(), devices, {1, 2}}).value();
  EXPECT_EQ(layer_counts(result), (Ints{10, 20, 0}));
  EXPECT_EQ(result.head_device, 1);
  EXPECT_EQ(assign_layers({small_model(), devices, {1, 0}}).value().head_device, 0);
}

TEST(LayerAssignment, RefusesRatiosThatDoNotMatch) {
  const std::vector<AssignableDevice> devices = {gpu("A", 300), gpu("B", 300), host(100)};
  for (const std::vector<double>& ratios : {std::vector<double>{1}, {1, 1, 1}}) {
    const Status status = assign_layers({small_model(), devices, ratios}).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_THAT(status.message(), HasSubstr("ratios for 2 devices: give one for each"));
  }
  EXPECT_EQ(assign_layers({small_model(), devices, {0, 0}}).status().code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(assign_layers({small_model(), {}, {}}).status().code(), StatusCode::invalid_argument);
}

TEST(LayerAssignment, SaysWhichContextWouldFit) {
  const Status status = assign_layers({small_model(), {host(110)}, {}}).status();
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_EQ(status.message(),
            "device CPU is short by 15.0 MiB: needs weights 88.0 MiB + KV 30.0 MiB + compute 7.0 "
            "MiB = 125.0 MiB, has 110.0 MiB free of 220.0 MiB");
  EXPECT_EQ(status.hint(), "would fit: a context of 1,008 positions instead of 2,048");
  ModelMemory shorter = small_model();
  for (LayerMemory& layer : shorter.layers) layer.kv_bytes = kMiB * 1008 / 2048;
  EXPECT_TRUE(assign_layers({shorter, {host(110)}, {}}).ok());
}

TEST(LayerAssignment, SaysHowManyLayersWouldFit) {
  ModelMemory model = small_model();
  model.context_positions = 0;
  const Status status = assign_layers({model, {host(80)}, {}}).status();
  EXPECT_EQ(status.hint(), "would fit: 14 of 30 layers; add a worker for the others");
  model.layers.resize(14);
  EXPECT_TRUE(assign_layers({model, {host(80)}, {}}).ok());
  model.layers.resize(15, model.layers[0]);
  EXPECT_FALSE(assign_layers({model, {host(80)}, {}}).ok());
}

TEST(LayerAssignment, NamesTheDeviceThatARatioOverfills) {
  const Status status =
      assign_layers({small_model(), {gpu("A", 300), gpu("B", 20), host(300)}, {1, 1}}).status();
  EXPECT_THAT(status.message(), HasSubstr("device B is short by"));
}

TEST(LayerAssignment, NamesTheLastDeviceIfTheHostMayNotHelp) {
  LayerAssignmentRequest request = {small_model(), {gpu("A", 40), gpu("B", 60), host(300)}, {}};
  EXPECT_TRUE(assign_layers(request).ok());
  request.may_use_host = false;
  EXPECT_THAT(assign_layers(request).status().message(), HasSubstr("device B is short by"));
}

TEST(LayerAssignment, TakesDevicesThatReportNothing) {
  // The accelerators hold nothing then; the host does.
  const LayerAssignment result =
      assign_layers({small_model(), {gpu("A", 0), gpu("B", 0), host(200)}, {}}).value();
  EXPECT_EQ(layer_counts(result), (Ints{0, 0, 30}));
  const Status status =
      assign_layers({small_model(), {gpu("A", 0), gpu("B", 0), host(0)}, {}}).status();
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_EQ(status.hint(), "every device reports 0 bytes free: state the memory to use");
}

TEST(LayerAssignment, CountsAMemoryWithTwoNamesOnce) {
  std::vector<AssignableDevice> devices = {gpu("A", 80), gpu("B", 80), host(300)};
  devices[0].memory_id = devices[1].memory_id = "gpu-1";
  const LayerAssignment result = assign_layers({small_model(), devices, {}}).value();
  EXPECT_EQ(layer_counts(result)[1], 0);
  EXPECT_LE(result.accounts[0].needed_bytes(), 80 * kMiB);
}

TEST(LayerAssignment, LoadsOrSaysWhatIsShortForEveryContext) {
  for (const uint64_t cap : {60, 90, 120}) {
    for (const int64_t context : {512, 2048, 8192}) {
      ModelMemory model = small_model();
      model.context_positions = context;
      for (LayerMemory& layer : model.layers) {
        layer.kv_bytes = kMiB * static_cast<uint64_t>(context) / 2048;
      }
      const auto result = assign_layers({model, {gpu("A", cap), host(cap)}, {}});
      if (result.ok()) {
        for (const DeviceAccount& account : result->accounts) EXPECT_EQ(account.short_bytes(), 0u);
      } else {
        EXPECT_EQ(result.status().code(), StatusCode::resource_exhausted);
        EXPECT_THAT(result.status().message(), HasSubstr("is short by"));
        EXPECT_THAT(result.status().hint(), HasSubstr("would fit: "));
      }
    }
  }
}

TEST(LayerAssignment, AHeadAloneIsAStageToo) {
  ModelMemory model = small_model();
  model.layers.clear();
  model.has_embedding = false;
  const LayerAssignment result = assign_layers({model, {gpu("A", 40), host(40)}, {}}).value();
  EXPECT_EQ(result.head_device, 0);
  EXPECT_EQ(result.accounts[0].weights_bytes(), 28 * kMiB + 4096);
  EXPECT_EQ(result.accounts[1].needed_bytes(), 0u);
}

}  // namespace
}  // namespace strata
