// Goal: sizes, counts and durations read the same everywhere, and sizes typed by people parse.
#include "runtime/base/human.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Human, BytesCountsAndDurations) {
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_count(90112000), "90,112,000");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_duration(microseconds(85)), "85 µs");
  EXPECT_EQ(human_duration(milliseconds(1200)), "1.20 s");
  EXPECT_EQ(human_duration(seconds(125)), "2 min 5 s");
}

TEST(Human, ParsesSizesAndRefusesNonsense) {
  EXPECT_EQ(parse_bytes("512").value(), 512u);
  EXPECT_EQ(parse_bytes("1.5GiB").value(), 1610612736u);
  EXPECT_EQ(parse_bytes("64k").value(), 65536u);
  EXPECT_EQ(parse_bytes("2GB").value(), uint64_t{2} << 30);
  for (const char* bad : {"", "-1", "ten", "1X", "1KK", "nan", "1e30", "9000000T"}) {
    EXPECT_FALSE(parse_bytes(bad).ok()) << bad;
  }
}

TEST(Human, MemoryHasAUnit) {
  EXPECT_EQ(parse_memory("8GiB").value(), uint64_t{8} << 30);
  EXPECT_EQ(parse_memory("1M").value(), 1u << 20);
  EXPECT_EQ(parse_memory("8589934592").value(), uint64_t{8} << 30);
  for (const char* text : {"8", "0", "900", "1023K", "8B"}) {
    const Status status = parse_memory(text).status();
    EXPECT_EQ(status.code(), StatusCode::invalid_argument) << text;
    EXPECT_NE(status.message().find("the least is 1.0 MiB"), std::string::npos) << text;
    EXPECT_EQ(status.hint(), "write a number with its unit, such as 8GiB");
  }
  EXPECT_EQ(parse_memory("8 bytes").status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace strata
