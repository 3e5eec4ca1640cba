// MemorySpread: when there is something to spread over, by described machines and made-up /sys
// folders; and that a refusal leaves memory usable.
#include "runtime/topology/memory_spread.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MemorySpread, IsOverTheNodesOfTheProcessors) {
  const auto spread = [](const std::vector<int>& cpus) {
    return MemorySpread(Topology::described("numa:4 core:2 pu:1").value(), cpus).nodes();
  };
  EXPECT_THAT(spread({0, 1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(spread({1, 6}), ElementsAre(0, 3));
  EXPECT_THAT(spread({4, 5}), IsEmpty()) << "one node: first touch is as good";
}

TEST(MemorySpread, AsksNothingOfAMachineWithOneNode) {
  const test::TempDir folder;
  const std::string nodes = folder.path() + "/sys/devices/system/node";
  EXPECT_THAT(MemorySpread::of_this_process(folder.path()).nodes(), IsEmpty()) << "no such file";
  std::filesystem::create_directories(nodes);
  std::ofstream(nodes + "/online") << "0\n";
  EXPECT_THAT(MemorySpread::of_this_process(folder.path()).nodes(), IsEmpty());
}

TEST(MemorySpread, ARefusalLeavesTheMemoryUsable) {
  // Described nodes that this machine hardly has, so that the system's answer may be anything.
  const MemorySpread spread(Topology::described("numa:2 core:2 pu:1").value(),
                            std::vector<int>{0, 1, 2, 3});
  std::vector<std::byte> memory(1 << 16, std::byte{3});
  spread.apply(memory);
  spread.apply({});
  MemorySpread().apply(memory);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{3}), 1 << 16);
}

}  // namespace
}  // namespace strata
