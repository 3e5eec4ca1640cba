// The rule by which processors count as a process's own. Method: made-up /proc and /sys folders of
// a desktop, a shielded host, a container, a partition.
#include "runtime/topology/exclusive_cpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr pid_t kSelf = 500;

// A host with processors 0 to 7, whose processes may run on 0 to 3, and this one, started from a
// shell, on 4 to 7.
class ExclusiveCpus : public ::testing::Test {
 protected:
  void SetUp() override {
    write("/sys/devices/system/cpu/online", "0-7\n");
    write("/sys/devices/system/cpu/isolated", "\n");
    write("/proc/self/cgroup", "0::/jobs/llm\n");
    write("/proc/meminfo", "MemTotal: 1 kB\n");
    namespace_is("pid:[4026531836]");
    process(1, "init", 0, "0-3");
    process(300, "sshd", 1, "0-3");
    process(310, "cron", 1, "0-3");
    process(400, "bash", 300, "4-7");
    process(kSelf, "strata", 400, "4-7");
  }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories(fs::path(root() + path).parent_path());
    std::ofstream(root() + path) << text;
  }
  void namespace_is(const std::string& name) {
    fs::create_directories(root() + "/proc/self/ns");
    fs::remove(root() + "/proc/self/ns/pid");
    fs::create_symlink(name, root() + "/proc/self/ns/pid");
  }
  void process(pid_t pid, const std::string& name, pid_t parent, const std::string& cpus,
               bool has_memory = true) {
    write("/proc/" + std::to_string(pid) + "/status",
          "Name:\t" + name + "\nPid:\t" + std::to_string(pid) + "\nPPid:\t" +
              std::to_string(parent) + "\n" + (has_memory ? "VmSize:\t    4000 kB\n" : "") +
              "Cpus_allowed:\tff\nCpus_allowed_list:\t" + cpus + "\n");
  }
  void forget(pid_t pid) { fs::remove_all(root() + "/proc/" + std::to_string(pid)); }
  CpuClaim judge(const std::vector<int>& cpus = {4, 5, 6, 7}) const {
    return judge_cpus(cpus, root(), kSelf);
  }
  void expect_shared(const CpuClaim& claim, const std::string& reason) const {
    EXPECT_FALSE(claim.is_exclusive);
    EXPECT_THAT(claim.reason, HasSubstr(reason));
  }
  void expect_own(const CpuClaim& claim, const std::string& reason) const {
    EXPECT_TRUE(claim.is_exclusive);
    EXPECT_THAT(claim.reason, HasSubstr(reason));
  }

 private:
  std::string root() const { return folder_.path(); }
  const test::TempDir folder_;
};

TEST_F(ExclusiveCpus, AreOnesWhereNobodyElseMayRun) {
  expect_own(judge(), "no other process of the host may run on these processors");
}

TEST_F(ExclusiveCpus, AreNeverAllOfAMachine) {
  expect_shared(judge({0, 1, 2, 3, 4, 5, 6, 7}), "all processors of this machine are in use");
}

// A desktop: taskset does not keep the others away.
TEST_F(ExclusiveCpus, AreNotTheOnesOfAMaskAlone) {
  process(310, "browser", 1, "0-7");
  expect_shared(judge(), "process 310 (browser) may run on the same processors");
}

TEST_F(ExclusiveCpus, AreNotSharedWithASecondWorker) {
  process(501, "strata", 400, "4-5");
  expect_shared(judge(), "process 501 (strata)");
}

TEST_F(ExclusiveCpus, KernelThreadsDoNotCount) {
  process(20, "kworker/5:0", 2, "5", false);
  expect_own(judge(), "no other process");
}

// Its shell may run there too, but waits.
TEST_F(ExclusiveCpus, AncestorsDoNotCount) {
  process(300, "sshd", 1, "0-7");
  expect_own(judge(), "no other process");
  process(1, "init", 0, "0-7");
  expect_own(judge(), "no other process");
}

TEST_F(ExclusiveCpus, AContainerSeesTooLittle) {
  namespace_is("pid:[4026532999]");
  expect_shared(judge(), "other processes of the host cannot be seen from here");
}

TEST_F(ExclusiveCpus, HiddenProcessesAreNotSeen) {
  forget(1);
  expect_shared(judge(), "cannot be seen from here");
}

TEST_F(ExclusiveCpus, APartitionKeepsOthersOff) {
  namespace_is("pid:[4026532999]");
  write("/sys/fs/cgroup/jobs/llm/cpuset.cpus.partition", "member\n");
  write("/sys/fs/cgroup/jobs/cpuset.cpus.partition", "isolated\n");
  expect_own(judge(), "the cpuset of /jobs is a partition");
  write("/sys/fs/cgroup/jobs/cpuset.cpus.partition", "root\n");
  expect_own(judge(), "the cpuset of /jobs is a partition");
  write("/sys/fs/cgroup/jobs/cpuset.cpus.partition", "root invalid (Parent is not a partition)\n");
  expect_shared(judge(), "no cpuset partition");
}

TEST_F(ExclusiveCpus, APartitionIsSeenFromWithin) {
  namespace_is("pid:[4026532999]");
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpuset.cpus.partition", "root\n");
  expect_own(judge(), "the cpuset of / is a partition");
  process(600, "sidecar", 1, "4-7");
  expect_shared(judge(), "process 600 (sidecar)");
}

TEST_F(ExclusiveCpus, IsolatedProcessorsAreFree) {
  namespace_is("pid:[4026532999]");
  write("/sys/devices/system/cpu/isolated", "4-7\n");
  expect_own(judge(), "isolated from the scheduler");
  expect_shared(judge({3, 4}), "process 310 (cron)");
}

TEST_F(ExclusiveCpus, NothingKnownIsNothingClaimed) {
  expect_shared(judge({}), "does not tell its processors");
  expect_shared(judge_cpus(std::vector<int>{4}, "/nowhere", kSelf), "does not tell");
}

}  // namespace
}  // namespace strata
