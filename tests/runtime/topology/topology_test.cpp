// Topology: orders of processors and memory nodes of described machines, and what the system says
// of this one.
#include "runtime/topology/topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "runtime/base/cpu_list.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAreArray;

std::vector<int> up_to(int count) {
  std::vector<int> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

TEST(Topology, TakesOneProcessorOfEachCoreFirst) {
  // Siblings side by side: 0 and 1 are one core.
  const Topology side_by_side = Topology::described("core:4 pu:2").value();
  EXPECT_THAT(side_by_side.one_per_core_first(up_to(8)), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  EXPECT_THAT(side_by_side.one_per_core_first(std::vector<int>{1, 4, 5, 7}),
              ElementsAre(1, 4, 7, 5))
      << "only what is asked for; of core 2 both, one of them late";
  // Siblings far apart, as Linux numbers them on most machines: 0 and 4 are one core.
  const Topology apart = Topology::described("core:4 pu:2(indexes=0,4,1,5,2,6,3,7)").value();
  EXPECT_THAT(apart.one_per_core_first(up_to(8)), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(apart.one_per_core_first(std::vector<int>{0, 1, 4, 5}), ElementsAre(0, 1, 4, 5));
}

TEST(Topology, KeepsProcessorsThatNobodyKnows) {
  const Topology topology = Topology::described("core:2 pu:1").value();
  EXPECT_THAT(topology.one_per_core_first(std::vector<int>{0, 1, 7}), ElementsAre(0, 1, 7));
  EXPECT_THAT(topology.one_per_core_first(std::vector<int>{}), IsEmpty());
}

TEST(Topology, FindsTheMemoryNextToProcessors) {
  const Topology two = Topology::described("numa:2 core:4 pu:2").value();
  EXPECT_THAT(two.memory_nodes(up_to(16)), ElementsAre(0, 1));
  EXPECT_THAT(two.memory_nodes(std::vector<int>{8, 9, 15}), ElementsAre(1));
  EXPECT_THAT(two.memory_nodes(std::vector<int>{7, 8}), ElementsAre(0, 1));
  EXPECT_THAT(two.memory_nodes(std::vector<int>{99}), IsEmpty());
  const Topology one = Topology::described("core:4 pu:1").value();
  EXPECT_THAT(one.memory_nodes(up_to(4)), ElementsAre(0));
}

TEST(Topology, RefusesADescriptionWithoutSense) {
  const Status status = Topology::described("cores of some kind").status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("'cores of some kind'"));
}

TEST(Topology, KnowsThisMachine) {
  const Topology topology = Topology::of_this_machine().value();
  const std::vector<int> cpus = allowed_cpus(::getpid());
  EXPECT_THAT(topology.one_per_core_first(cpus), UnorderedElementsAreArray(cpus));
  EXPECT_EQ(allowed_cpus(::getpid()), cpus) << "looking has moved nobody";
}

TEST(Topology, InterleavesPagesOrSaysWhyNot) {
  const Topology topology = Topology::of_this_machine().value();
  constexpr size_t kBytes = 64 * 4096;
  void* pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  const std::span<std::byte> memory(static_cast<std::byte*>(pages), kBytes);
  const std::vector<int> nodes = topology.memory_nodes(allowed_cpus(::getpid()));
  // Containers may forbid the call; nothing else may go wrong.
  const Status status = topology.interleave(memory, nodes);
  EXPECT_TRUE(status.ok() || status.code() == StatusCode::unavailable) << status.to_string();
  std::fill(memory.begin(), memory.end(), std::byte{7});
  EXPECT_EQ(std::count(memory.begin(), memory.end(), std::byte{7}), kBytes);

  const Status none = topology.interleave(memory, std::vector<int>{900});
  EXPECT_EQ(none.code(), StatusCode::unavailable);
  EXPECT_THAT(none.message(), HasSubstr("does not spread memory over its nodes: "));
  ::munmap(pages, kBytes);
}

}  // namespace
}  // namespace strata
