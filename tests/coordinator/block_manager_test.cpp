// Block tables against an oracle that knows which positions each sequence may still read.
#include "coordinator/engine/block_manager.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/coordinator/fake_pipeline.h"

namespace strata::coordinator {
namespace {

TEST(BlockManager, GivesABlockPerSixteenPositionsAndGroup) {
  BlockManager blocks({{.window = 0, .block_count = 4}, {.window = 16, .block_count = 3}});
  BlockTables tables = blocks.open();
  std::vector<BlockChange> changes;
  ASSERT_TRUE(blocks.extend(tables, 0, 16, 5, changes));
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_EQ(changes[1].slot, 5U);
  EXPECT_EQ(changes[1].group, 1U);
  EXPECT_EQ(blocks.free_blocks(0), 3U);
  ASSERT_TRUE(blocks.extend(tables, 16, 17, 5, changes));
  EXPECT_EQ(changes.size(), 4U);
  // Position 31 still sees 16; position 32 does not see 16 any more, but 17.
  ASSERT_TRUE(blocks.extend(tables, 17, 31, 5, changes));
  EXPECT_EQ(blocks.free_blocks(1), 1U);
  ASSERT_TRUE(blocks.extend(tables, 31, 32, 5, changes));
  EXPECT_EQ(blocks.free_blocks(1), 2U) << "block 0 is out of position 31's window";
  ASSERT_TRUE(blocks.extend(tables, 32, 33, 5, changes));
  EXPECT_EQ(blocks.free_blocks(0), 1U);
  EXPECT_EQ(blocks.free_blocks(1), 1U);
  blocks.release(tables);
  EXPECT_EQ(blocks.free_blocks(0), 4U);
  EXPECT_EQ(blocks.free_blocks(1), 3U);
}

TEST(BlockManager, RefusalChangesNothing) {
  BlockManager blocks({{.window = 0, .block_count = 8}, {.window = 0, .block_count = 2}});
  BlockTables tables = blocks.open();
  std::vector<BlockChange> changes;
  EXPECT_FALSE(blocks.extend(tables, 0, 40, 0, changes));
  EXPECT_TRUE(changes.empty());
  EXPECT_EQ(blocks.free_blocks(0), 8U);
  EXPECT_EQ(blocks.free_blocks(1), 2U);
}

TEST(BlockManager, SaysWhatCanNeverFit) {
  const BlockManager full({{.window = 0, .block_count = 8}});
  EXPECT_TRUE(full.can_ever_hold(128, 64));
  EXPECT_FALSE(full.can_ever_hold(129, 64));
  const BlockManager windowed({{.window = 32, .block_count = 8}});
  EXPECT_TRUE(windowed.can_ever_hold(1'000'000, 64));
  EXPECT_FALSE(windowed.can_ever_hold(1'000'000, 128));
}

// Random sequences of rows; after each, no two live readable positions share a cell, held blocks
// and free ones add up, and a lone sequence that can_ever_hold() promised always finds room.
TEST(BlockManager, RandomOperationsKeepEveryReadableCellOwned) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    Random random(seed);
    std::vector<KvGroupShape> shapes;
    for (uint32_t g = 0; g < 1 + random() % 3; ++g) {
      const uint32_t window = random() % 2 == 0 ? 0 : 1 + random() % 70;
      shapes.push_back({.window = window, .block_count = 10 + random() % 40});
    }
    BlockManager blocks(shapes);
    struct Live {
      BlockTables tables;
      uint32_t length = 0;
      std::map<std::pair<uint32_t, uint32_t>, int32_t> stage;  // (group, index) -> block
    };
    std::map<uint32_t, Live> live;
    for (int operation = 0; operation < 400; ++operation) {
      const uint32_t slot = random() % 5;
      if (random() % 12 == 0 && live.contains(slot)) {
        blocks.release(live[slot].tables);
        live.erase(slot);
        continue;
      }
      if (!live.contains(slot)) live[slot].tables = blocks.open();
      Live& sequence = live[slot];
      const uint32_t count = 1 + random() % 40;
      std::vector<BlockChange> changes;
      if (!blocks.extend(sequence.tables, sequence.length, sequence.length + count, slot,
                         changes)) {
        const bool promised = blocks.can_ever_hold(sequence.length + count, 40);
        EXPECT_FALSE(live.size() == 1 && promised) << "a lone sequence found no room";
        continue;
      }
      for (const BlockChange& change : changes) {
        sequence.stage[{change.group, change.index}] = change.block;
      }
      const uint32_t begin = sequence.length;
      sequence.length += count;
      // Who reads what: the row from its first position on, others from their next one.
      std::set<std::pair<uint32_t, int32_t>> owned;
      for (const auto& [name, other] : live) {
        for (uint32_t g = 0; g < shapes.size(); ++g) {
          const uint32_t next = name == slot ? begin : other.length;
          const uint32_t window = shapes[g].window;
          const uint32_t first = window == 0 || next < window ? 0 : next - window + 1;
          for (uint32_t i = first / 16; i * 16 < other.length; ++i) {
            EXPECT_TRUE(owned.emplace(g, other.stage.at({g, i})).second) << "a shared block";
          }
        }
      }
    }
    for (auto& [slot, sequence] : live) blocks.release(sequence.tables);
    for (uint32_t g = 0; g < shapes.size(); ++g) {
      EXPECT_EQ(blocks.free_blocks(g), shapes[g].block_count);
    }
  }
}

}  // namespace
}  // namespace strata::coordinator
