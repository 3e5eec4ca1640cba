// Accounting: sums, the sentence for when memory runs out, and a report that stays sensible when
// devices report nonsense.
#include "runtime/memory/accounting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace strata {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

DeviceAccount account(std::string name, uint64_t total_mib, uint64_t free_mib) {
  DeviceAccount result;
  result.device = std::move(name);
  result.total_bytes = total_mib * kMiB;
  result.free_bytes = free_mib * kMiB;
  result.layers = {{10 * kMiB, 2 * kMiB}, {10 * kMiB, 2 * kMiB}, {}};
  result.input_bytes = 5 * kMiB;
  result.output_bytes = 3 * kMiB;
  result.compute_bytes = 4 * kMiB;
  return result;
}

TEST(Accounting, AddsUp) {
  const DeviceAccount a = account("A", 100, 80);
  EXPECT_EQ(a.weights_bytes(), 28 * kMiB);
  EXPECT_EQ(a.kv_bytes(), 4 * kMiB);
  EXPECT_EQ(a.needed_bytes(), 36 * kMiB);
  EXPECT_EQ(a.short_bytes(), 0u);
}

TEST(Accounting, SaysWhichDeviceIsShortAndByHowMuch) {
  const Status status = out_of_memory(account("CUDA0", 48, 24), "would fit: 1 of 3 layers");
  EXPECT_EQ(status.code(), StatusCode::resource_exhausted);
  EXPECT_EQ(status.message(),
            "device CUDA0 is short by 12.0 MiB: needs weights 28.0 MiB + KV 4.0 MiB + compute 4.0 "
            "MiB = 36.0 MiB, has 24.0 MiB free of 48.0 MiB");
  EXPECT_EQ(status.hint(), "would fit: 1 of 3 layers");
}

TEST(Accounting, CountsSharedMemoryForBoth) {
  std::vector<DeviceAccount> all = {account("a/GPU", 100, 90), account("b/GPU", 100, 90)};
  for (DeviceAccount& each : all) each.memory_id = "gpu-1";
  const MemoryShare share = memory_share(all[0], all);
  EXPECT_EQ(share.ours_bytes, 36 * kMiB);
  EXPECT_EQ(share.others_bytes, (10 + 36) * kMiB);
  EXPECT_EQ(share.left_bytes, 18 * kMiB);
}

TEST(Accounting, NoPartOfTheReportExceedsTheWhole) {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<DeviceAccount> all;
    for (int i = 0; i < 4; ++i) {
      // More free than there is, nothing at all, several on one memory.
      all.push_back(account("d", random() % 60, random() % 100));
      if (random() % 2 == 0) all.back().memory_id = "m" + std::to_string(random() % 2);
    }
    for (const DeviceAccount& each : all) {
      const MemoryShare share = memory_share(each, all);
      ASSERT_LE(share.ours_bytes, share.total_bytes) << seed;
      ASSERT_LE(share.others_bytes, share.total_bytes) << seed;
      ASSERT_LE(share.left_bytes, share.total_bytes) << seed;
      ASSERT_EQ(share.ours_bytes + share.others_bytes + share.left_bytes, share.total_bytes);
    }
  }
}

TEST(Accounting, PrintsATable) {
  const std::vector<DeviceAccount> all = {account("CUDA0", 100, 80)};
  EXPECT_THAT(memory_table(all), HasSubstr("device             total     weights          KV"));
  EXPECT_THAT(memory_table(all), HasSubstr("CUDA0          100.0 MiB    28.0 MiB     4.0 MiB"));
  EXPECT_THAT(memory_table(all), HasSubstr("20.0 MiB    44.0 MiB"));
}

}  // namespace
}  // namespace strata
