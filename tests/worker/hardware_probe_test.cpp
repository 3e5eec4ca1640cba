// Speeds as people give them, and the report of a machine whose speed is given.
#include "worker/hardware_probe.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "backends/backends.h"
#include "backends/cpu/cpu_device.h"
#include "backends/cpu/sustained_rate.h"
#include "tests/support/process_memory.h"
#include "tests/support/simulated_device.h"
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
  ProbeRequest request;
  request.speed = DeviceSpeed{1, 2, 3};
  const auto reports = probe_devices(registry, request);
  ASSERT_TRUE(reports.ok());
  ASSERT_FALSE(reports.value().empty());
  EXPECT_EQ(reports.value()[0].name, "CPU");
  EXPECT_GT(reports.value()[0].memory.total_bytes, 0u);
  EXPECT_EQ(reports.value()[0].speed.int8_ops_per_s, 2);
}

// Holds the name that a measuring worker holds, as another process would.
class OtherWorker {
 public:
  explicit OtherWorker(const std::string& name) {
    fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path + 1, name.data(), name.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&at), size), 0);
  }
  ~OtherWorker() { ::close(fd_); }

 private:
  int fd_ = -1;
};

TEST(HardwareProbe, WaitsForItsTurnAndStopsWaitingWhenAskedTo) {
  DeviceRegistry registry;
  ASSERT_TRUE(register_all(registry, {}).ok());
  ProbeRequest request;
  request.turn_name = "strata-probe-test-" + std::to_string(::getpid());
  std::stop_source stop;
  request.stop = stop.get_token();
  {
    const OtherWorker other(request.turn_name);
    std::thread stopper([&stop] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      stop.request_stop();
    });
    const auto reports = probe_devices(registry, request);
    stopper.join();
    EXPECT_EQ(reports.status().code(), StatusCode::cancelled);
  }
  // Its own turn: nobody holds the name any more. The measuring hears the stop as well.
  EXPECT_EQ(probe_devices(registry, request).status().code(), StatusCode::cancelled);
  // Two measured rates are numbers.
  request.stop = {};
  const auto reports = probe_devices(registry, request);
  ASSERT_TRUE(reports.ok()) << reports.status().to_string();
  EXPECT_GT(reports.value()[0].speed.read_bytes_per_s, 1e8);
  EXPECT_GT(reports.value()[0].speed.int8_ops_per_s, 1e8);
}

TEST(HardwareProbe, AQuotaCountsHoweverFastARoundIs) {
  // A process that runs for 20 ms of each 100 and then waits; a round takes 3 ms of it.
  double now = 0;
  const auto clock = [&] { return now; };
  const auto never = [] { return false; };
  const auto round = [&] {
    for (int i = 0; i < 3; ++i) {
      now += 0.001;
      if (now - std::floor(now / 0.1) * 0.1 >= 0.02) now = (std::floor(now / 0.1) + 1) * 0.1;
    }
  };
  const double unlimited = 1 / 0.003;
  const double unknown_quota = cpu::sustained_rate({.count = 2}, clock, never, round);
  EXPECT_GT(unknown_quota, unlimited * 0.18);
  EXPECT_LT(unknown_quota, unlimited * 0.28);
  // A span that is shorter than the first burst sees no quota; one that is known counts all the
  // same.
  now = 0.1;
  const cpu::RateSpans short_span{.count = 1, .seconds = 0.005};
  EXPECT_NEAR(cpu::sustained_rate(short_span, clock, never, round), unlimited, 1);
  now = 0.1;
  const cpu::RateSpans known{.count = 1, .seconds = 0.005, .share = 0.2};
  EXPECT_NEAR(cpu::sustained_rate(known, clock, never, round), unlimited * 0.2, 1);
}

TEST(HardwareProbe, MeasuringStaysWithinTheMemoryThatMayBeUsed) {
  DeviceRegistry registry;
  ASSERT_TRUE(register_all(registry, {}).ok());
  ProbeRequest request;
  request.turn_name = "strata-probe-memory-" + std::to_string(::getpid());
  request.memory_limit_bytes = 60 << 20;
  if (test::under_sanitizer()) GTEST_SKIP() << "a sanitizer's own memory counts";
  const uint64_t before = test::resident_bytes();
  test::reset_peak_resident();
  EXPECT_GT(probe_devices(registry, request).value()[0].speed.read_bytes_per_s, 0);
  const uint64_t after = test::peak_resident_bytes();
  EXPECT_LT(after - std::min(before, after), 40u << 20);
}

// A machine of 8 GiB with 6 free.
class HostMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    write("/proc/meminfo", "MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable: 6291456 kB\n");
    write("/proc/self/cgroup", "4:memory:/jobs/a\n0::/\n");
    write("/proc/self/mountinfo",
          "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(temp_.path() + path).parent_path());
    std::ofstream(temp_.path() + path) << text;
  }
  DeviceMemory memory() const { return cpu::host_memory(temp_.path()); }

 private:
  test::TempDir temp_;
};

TEST_F(HostMemory, IsThatOfTheMachineLessWhatGroupsTake) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  EXPECT_EQ(memory().total_bytes, 8 * kGiB);
  EXPECT_EQ(memory().free_bytes, 6 * kGiB);
  write("/sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", std::to_string(7 * kGiB));
  write("/sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", std::to_string(4 * kGiB));
  EXPECT_EQ(memory().total_bytes, 7 * kGiB);
  EXPECT_EQ(memory().free_bytes, 3 * kGiB);
  write("/sys/fs/cgroup/memory/jobs/a/memory.limit_in_bytes", std::to_string(200 << 20));
  write("/sys/fs/cgroup/memory/jobs/a/memory.usage_in_bytes", std::to_string(30 << 20));
  EXPECT_EQ(memory().total_bytes, uint64_t{200} << 20);
  EXPECT_EQ(memory().free_bytes, uint64_t{170} << 20);
}

TEST(HardwareProbe, ReportsAllDevicesInTheirOrder) {
  DeviceRegistry registry;
  for (const char* name : {"SIM0", "SIM1"}) {
    ASSERT_TRUE(registry
                    .add(std::make_unique<::strata::testing::SimulatedDevice>(
                        ::strata::testing::SimulatedDeviceOptions{
                            .name = name, .total_bytes = 5000, .refused = {}, .wanted = {}}))
                    .ok());
  }
  ASSERT_TRUE(register_all(registry, {}).ok());
  ProbeRequest request;
  request.speed = DeviceSpeed{1, 2, 3};
  const auto reports = probe_devices(registry, request).value();
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].name, "SIM0");
  EXPECT_EQ(reports[1].name, "SIM1");
  EXPECT_EQ(reports[1].kind, DeviceKind::gpu);
  EXPECT_EQ(reports[1].memory.total_bytes, 5000u);
  EXPECT_EQ(reports[2].name, "CPU");
}

TEST(HardwareProbe, TheHostsIdIsTheSameEachTimeAndTellsNothing) {
  const std::string id = host_id();
  EXPECT_EQ(id, host_id());
  ASSERT_EQ(id.size(), 32u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  for (const char* path : {"/etc/machine-id", "/proc/sys/kernel/random/boot_id"}) {
    std::ifstream file(path);
    std::string raw;
    if (!std::getline(file, raw)) continue;
    std::erase(raw, '-');
    EXPECT_NE(id, raw) << path;
  }
}

}  // namespace
}  // namespace strata::worker
