// The limits of control groups, on made-up /proc and /sys folders: both versions, a container, a
// machine that has both.
#include "runtime/base/cgroup.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = 1 << 20;

class Cgroup : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  // Version 2 on all of /sys/fs/cgroup, this process in `group`.
  void mount_v2(const std::string& group) {
    write("/proc/self/mountinfo",
          "22 27 0:21 / /proc rw,nosuid - proc proc rw\n"
          "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 master:2 - cgroup2 cgroup2 "
          "rw,nsdelegate\n");
    write("/proc/self/cgroup", "0::" + group + "\n");
  }
  // Version 1, with processors and memory in places of their own.
  void mount_v1(const std::string& cpu_group, const std::string& memory_group,
                const std::string& mounted = "/") {
    write("/proc/self/mountinfo",
          "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
          "32 31 0:29 " +
              mounted +
              " /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
              "33 31 0:30 " +
              mounted +
              " /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
              "35 31 0:32 " +
              mounted +
              " /cgroups/memory rw shared:3 - cgroup cgroup rw,memory\n"
              "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    write("/proc/self/cgroup", "5:memory:" + memory_group + "\n4:cpuset:/other\n3:cpu,cpuacct:" +
                                   cpu_group + "\n1:name=systemd:/\n0::/\n");
  }
  CgroupLimits limits() const { return read_cgroup_limits(root()); }
  std::string root() const { return temp_.path(); }

 private:
  test::TempDir temp_;
};

TEST_F(Cgroup, WithoutLimitsOrGroupsThereIsNone) {
  const auto expect_none = [&] {
    EXPECT_FALSE(limits().cores);
    EXPECT_FALSE(limits().memory_bytes);
    EXPECT_FALSE(limits().memory_free_bytes);
    EXPECT_EQ(limits().memory_group, "");
  };
  expect_none();
  mount_v2("/a");
  expect_none();
  write("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/a/memory.max", "max\n");
  write("/sys/fs/cgroup/a/memory.high", "max\n");
  write("/sys/fs/cgroup/a/memory.current", "1000\n");
  expect_none();
  mount_v1("/a", "/a");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000\n");
  expect_none();
  write("/proc/self/cgroup", "no colons\n3:cpu\n");
  write("/proc/self/mountinfo", "1 2 - cgroup2\n- cgroup\n\n");
  expect_none();
}

TEST_F(Cgroup, Version2TakesTheLeastOfItsGroupsAndThoseAround) {
  mount_v2("/jobs/llm/worker");
  write("/sys/fs/cgroup/jobs/llm/worker/cpu.max", "300000 100000\n");
  write("/sys/fs/cgroup/jobs/llm/cpu.max", "max 100000\n");
  write("/sys/fs/cgroup/jobs/cpu.max", "75000 50000\n");
  EXPECT_EQ(limits().cores, 1.5);
  write("/sys/fs/cgroup/jobs/llm/worker/memory.max", std::to_string(500 * kMiB) + "\n");
  write("/sys/fs/cgroup/jobs/llm/worker/memory.current", std::to_string(120 * kMiB) + "\n");
  write("/sys/fs/cgroup/jobs/llm/worker/memory.stat",
        "anon 1\nfile 2\ninactive_file " + std::to_string(20 * kMiB) + "\nactive_file 7\n");
  EXPECT_EQ(limits().memory_bytes, 500 * kMiB);
  EXPECT_EQ(limits().memory_free_bytes, 400 * kMiB);
  EXPECT_EQ(limits().memory_group, "/sys/fs/cgroup/jobs/llm/worker");
  // Another process of the group around this one takes what is left there.
  write("/sys/fs/cgroup/jobs/memory.max", std::to_string(800 * kMiB) + "\n");
  write("/sys/fs/cgroup/jobs/memory.current", std::to_string(700 * kMiB) + "\n");
  EXPECT_EQ(limits().memory_bytes, 500 * kMiB);
  EXPECT_EQ(limits().memory_free_bytes, 100 * kMiB);
  // Beyond memory.high the kernel slows a group down.
  write("/sys/fs/cgroup/jobs/memory.high", std::to_string(200 * kMiB) + "\n");
  EXPECT_EQ(limits().memory_bytes, 200 * kMiB);
  EXPECT_EQ(limits().memory_free_bytes, 0u);
  EXPECT_EQ(limits().memory_group, "/sys/fs/cgroup/jobs");
}

TEST_F(Cgroup, Version1ReadsEachControllerWhereItIsMounted) {
  mount_v1("/weak/inner", "/small");
  write("/sys/fs/cgroup/cpu,cpuacct/weak/cpu.cfs_quota_us", "20000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/weak/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/weak/inner/cpu.cfs_quota_us", "50000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/weak/inner/cpu.cfs_period_us", "100000\n");
  // Of a group that this process is not in.
  write("/sys/fs/cgroup/cpu,cpuacct/small/cpu.cfs_quota_us", "10000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/small/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limits().cores, 0.2);
  write("/cgroups/memory/small/memory.limit_in_bytes", std::to_string(200 * kMiB) + "\n");
  write("/cgroups/memory/small/memory.usage_in_bytes", std::to_string(50 * kMiB) + "\n");
  write("/cgroups/memory/small/memory.stat",
        "inactive_file 5\ntotal_inactive_file " + std::to_string(10 * kMiB) + "\n");
  // None, as version 1 writes it.
  write("/cgroups/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("/cgroups/memory/memory.usage_in_bytes", "12345678\n");
  EXPECT_EQ(limits().memory_bytes, 200 * kMiB);
  EXPECT_EQ(limits().memory_free_bytes, 160 * kMiB);
  EXPECT_EQ(limits().memory_group, "/cgroups/memory/small");
}

TEST_F(Cgroup, InAContainerTheMountedGroupIsTheOutermost) {
  // As the host names the group, which is mounted as the root.
  mount_v1("/docker/abc", "/docker/abc", "/docker/abc");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "150000\n");
  write("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  write("/cgroups/memory/memory.limit_in_bytes", std::to_string(300 * kMiB) + "\n");
  EXPECT_EQ(limits().cores, 1.5);
  EXPECT_EQ(limits().memory_bytes, 300 * kMiB);
  // A group within it.
  mount_v1("/docker/abc/inner", "/docker/abc/inner", "/docker/abc");
  write("/cgroups/memory/inner/memory.limit_in_bytes", std::to_string(100 * kMiB) + "\n");
  EXPECT_EQ(limits().memory_bytes, 100 * kMiB);
  EXPECT_EQ(limits().cores, 1.5);
  // A name that only begins alike, and groups that lie outside of what can be seen.
  for (const char* group : {"/docker/abcd", "/other", "/../..", "/"}) {
    mount_v1(group, group, "/docker/abc");
    EXPECT_EQ(limits().memory_bytes, 300 * kMiB) << group;
  }
  // In a namespace of its own it is "/".
  mount_v2("/");
  write("/sys/fs/cgroup/memory.max", std::to_string(70 * kMiB) + "\n");
  EXPECT_EQ(limits().memory_bytes, 70 * kMiB);
  EXPECT_EQ(limits().memory_free_bytes, 70 * kMiB);
  EXPECT_EQ(limits().memory_group, "/sys/fs/cgroup");
}

TEST_F(Cgroup, OfBothVersionsTheLowerLimitCounts) {
  mount_v1("/", "/");
  write("/cgroups/memory/memory.limit_in_bytes", std::to_string(300 * kMiB) + "\n");
  write("/sys/fs/cgroup/unified/memory.max", std::to_string(250 * kMiB) + "\n");
  write("/sys/fs/cgroup/unified/cpu.max", "50000 100000\n");
  EXPECT_EQ(limits().memory_bytes, 250 * kMiB);
  EXPECT_EQ(limits().cores, 0.5);
}

}  // namespace
}  // namespace strata
