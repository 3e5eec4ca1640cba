// RangeAllocator: placement rules one by one, then random sequences against a bitmap of what is
// handed out.
#include "runtime/memory/range_allocator.h"

#include <gtest/gtest.h>

#include <random>

namespace strata {
namespace {

TEST(RangeAllocator, TakesTheSmallestHoleThatFits) {
  RangeAllocator ranges(16, 1 << 20);
  const MemoryRange large = ranges.allocate(160);
  ranges.allocate(16);
  const MemoryRange small = ranges.allocate(64);
  ranges.allocate(16);
  ranges.release(large);
  ranges.release(small);
  EXPECT_EQ(ranges.allocate(48).offset, small.offset);
  EXPECT_EQ(ranges.allocate(48).offset, large.offset);
  EXPECT_EQ(ranges.peak_bytes(), 256u);
}

TEST(RangeAllocator, MergesNeighboursOnRelease) {
  RangeAllocator ranges(16, 1 << 20);
  const MemoryRange a = ranges.allocate(32), b = ranges.allocate(32), c = ranges.allocate(32);
  ranges.allocate(16);
  ranges.release(a);
  ranges.release(c);
  EXPECT_EQ(ranges.free_ranges(0).size(), 3u);  // a, c and the tail
  ranges.release(b);
  ASSERT_EQ(ranges.free_ranges(0).size(), 2u);
  EXPECT_EQ(ranges.free_ranges(0)[0].size, 96u);
  EXPECT_EQ(ranges.used_bytes(), 16u);
}

TEST(RangeAllocator, OpensAChunkWhenNoneHasRoom) {
  RangeAllocator ranges(16, 128);
  EXPECT_EQ(ranges.allocate(100).chunk, 0);
  EXPECT_EQ(ranges.allocate(100).chunk, 1);
  EXPECT_EQ(ranges.allocate(16).chunk, 0);  // the tails of 0 and 1 are equal: the first
  EXPECT_EQ(ranges.chunk_peak(0), 128u);
  EXPECT_EQ(ranges.chunk_peak(1), 112u);
}

TEST(RangeAllocator, GivesAnOversizedRequestAChunkOfItsOwn) {
  RangeAllocator ranges(16, 128);
  const MemoryRange big = ranges.allocate(1000);
  EXPECT_EQ(big.size, 1008u);
  EXPECT_EQ(ranges.allocate(16).chunk, 1);  // chunk 0 is full
}

TEST(RangeAllocator, HasNoRoomForWhatNoMemoryHolds) {
  RangeAllocator ranges(16, UINT64_MAX);
  const MemoryRange first = ranges.allocate(100);
  for (const uint64_t size : {UINT64_MAX - 15, UINT64_MAX, uint64_t{1} << 63}) {
    EXPECT_FALSE(ranges.allocate(size).valid());
  }
  EXPECT_EQ(ranges.peak_bytes(), 112u);
  ranges.release(first);
  EXPECT_EQ(ranges.used_bytes(), 0u);
}

TEST(RangeAllocator, GrowsTheLastChunkWithoutLimit) {
  RangeAllocator ranges(16, 64);
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(ranges.allocate(64).valid());
  EXPECT_EQ(ranges.chunk_count(), RangeAllocator::kMaxChunks);
  EXPECT_EQ(ranges.chunk_peak(RangeAllocator::kMaxChunks - 1), 64u * 25);
  EXPECT_EQ(ranges.peak_bytes(), 64u * 40);
}

TEST(RangeAllocator, GivesEmptyTensorsAnAddressOfTheirOwn) {
  RangeAllocator ranges(32, 1 << 20);
  const MemoryRange a = ranges.allocate(0), b = ranges.allocate(0);
  EXPECT_NE(a.offset, b.offset);
  EXPECT_EQ(a.size, 32u);
}

TEST(RangeAllocator, LeavesOccupiedRangesOfAGivenChunkAlone) {
  RangeAllocator ranges(16, 1 << 20);
  ranges.add_chunk(128, {{0, 40, 20}, {0, 50, 14}});
  EXPECT_EQ(ranges.allocate(32).offset, 0u);
  EXPECT_EQ(ranges.allocate(64).offset, 64u);
  EXPECT_EQ(ranges.allocate(16).chunk, 1);  // 32 to 64 is occupied, and the chunk may not grow
}

TEST(RangeAllocator, NeverHandsOutAByteTwice) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    RangeAllocator ranges(8, 512);
    std::vector<std::vector<bool>> taken(RangeAllocator::kMaxChunks, std::vector<bool>(1 << 16));
    std::vector<MemoryRange> live;
    uint64_t used = 0;
    for (int i = 0; i < 400; ++i) {
      if (!live.empty() && random() % 2 == 0) {
        const size_t index = random() % live.size();
        for (uint64_t at = live[index].offset; at < live[index].end(); ++at) {
          taken[live[index].chunk][at] = false;
        }
        used -= live[index].size;
        ranges.release(live[index]);
        live.erase(live.begin() + static_cast<ptrdiff_t>(index));
      } else {
        const MemoryRange range = ranges.allocate(random() % 200);
        ASSERT_TRUE(range.valid());
        ASSERT_EQ(range.offset % 8, 0u);
        for (uint64_t at = range.offset; at < range.end(); ++at) {
          ASSERT_FALSE(taken[range.chunk][at]);
          taken[range.chunk][at] = true;
        }
        used += range.size;
        live.push_back(range);
      }
      ASSERT_EQ(ranges.used_bytes(), used);
    }
    for (const MemoryRange& range : live) ranges.release(range);
    for (int c = 0; c < ranges.chunk_count(); ++c) {
      ASSERT_EQ(ranges.free_ranges(c).size(), 1u);  // all merged
      ASSERT_EQ(ranges.free_ranges(c)[0].offset, 0u);
    }
  }
}

}  // namespace
}  // namespace strata
