// Lists of processors: the kernel's text in and out, and masks of threads.
#include "runtime/base/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;

TEST(CpuList, ReadsTheKernelsText) {
  EXPECT_THAT(parse_cpu_list("0-3,8,10-11\n"), Optional(ElementsAre(0, 1, 2, 3, 8, 10, 11)));
  EXPECT_THAT(parse_cpu_list("5"), Optional(ElementsAre(5)));
  EXPECT_THAT(parse_cpu_list("7,2-3,3"), Optional(ElementsAre(2, 3, 7)));
  EXPECT_THAT(parse_cpu_list("\n"), Optional(IsEmpty()));
  EXPECT_THAT(parse_cpu_list(""), Optional(IsEmpty()));
  for (const char* bad : {"a", "1-", "-1", "3-1", "1,", ",1", "1;2", "0-99999999", "1 2"}) {
    EXPECT_EQ(parse_cpu_list(bad), std::nullopt) << bad;
  }
}

TEST(CpuList, WritesRunsAsRanges) {
  EXPECT_EQ(cpu_list_text(std::vector<int>{0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(cpu_list_text(std::vector<int>{0, 2, 1, 3}), "0,2,1,3") << "the order is kept";
  EXPECT_EQ(cpu_list_text(std::vector<int>{}), "");
}

TEST(CpuList, AThreadLeavesItsMakersMask) {
  const std::vector<int> all = allowed_cpus(::getpid());
  ASSERT_FALSE(all.empty());
  std::vector<int> narrow;
  std::vector<int> inherited;
  std::vector<int> wide;
  std::thread maker([&] {
    ASSERT_TRUE(allow_cpus(0, std::span(all).last(1)));
    narrow = allowed_cpus(0);
    std::thread([&] {
      inherited = allowed_cpus(0);
      run_where_process_may();
      wide = allowed_cpus(0);
    }).join();
  });
  maker.join();
  EXPECT_THAT(narrow, ElementsAre(all.back()));
  EXPECT_THAT(inherited, ElementsAre(all.back()));
  EXPECT_EQ(wide, all);
  EXPECT_EQ(allowed_cpus(::getpid()), all);
}

TEST(CpuList, SaysWhatTheKernelRefuses) {
  EXPECT_FALSE(allow_cpus(0, std::vector<int>{60000}));
  EXPECT_THAT(allowed_cpus(-5), IsEmpty());
}

}  // namespace
}  // namespace strata
