// Speeds as people give them, and the report of a machine whose speed is given.
#include "worker/hardware_probe.h"

#include <gtest/gtest.h>

#include "backends/backends.h"
#include "tests/support/temp_dir.h"

namespace strata::worker {
namespace {

TEST(HardwareProbe, ReadsThreePositiveNumbers) {
  const auto speed = parse_speed("20,400,100.5");
  ASSERT_TRUE(speed.ok());
  EXPECT_EQ(speed.value().read_bytes_per_s, 20e9);
  EXPECT_EQ(speed.value().int8_ops_per_s, 400e9);
  EXPECT_EQ(speed.value().f32_ops_per_s, 100.5e9);
  for (const char* bad : {"", "20", "20,400", "20,400,100,1", "20,400,-1", "20,400,0", "a,b,c",
                          "20,400,nan", "20,400,inf", "20 400 100"}) {
    EXPECT_EQ(parse_speed(bad).status().code(), StatusCode::invalid_argument) << bad;
  }
}

TEST(HardwareProbe, ReportsEachDeviceWithTheGivenSpeed) {
  DeviceRegistry registry;
  ASSERT_TRUE(register_all(registry, {}).ok());
  const test::TempDir folder;
  ProbeRequest request;
  request.speed = DeviceSpeed{1, 2, 3};
  request.lock_folder = folder.path();
  const auto reports = probe_devices(registry, request);
  ASSERT_TRUE(reports.ok());
  ASSERT_FALSE(reports.value().empty());
  EXPECT_EQ(reports.value()[0].name, "CPU");
  EXPECT_GT(reports.value()[0].memory.total_bytes, 0u);
  EXPECT_EQ(reports.value()[0].speed.int8_ops_per_s, 2);
}

}  // namespace
}  // namespace strata::worker
