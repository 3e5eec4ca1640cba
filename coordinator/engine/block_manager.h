// BlockManager: which KV blocks belong to which sequence, for all stages of a pipeline at once.
//
// The KV cache of every stage is cut into blocks of 16 positions. A *KV group* is the set of layers
// with the same attention window; one block id of a group names the same block on every layer of
// the group, on every stage. A sequence has one table per group: entry i holds the block of
// positions [16 i, 16 i + 16). Tables live here; stages learn of them by the BlockChange records
// of the steps.
//
//   positions   0..15  16..31  32..47  48..63
//   full        b3     b7      b1      b4
//   window 16   -      -       b2      b0        fell out of the window: given back
//
// Stages run all steps in order, so that a block given back may be handed out again in the very
// next step: whatever older steps still do with it happens first.
// Blocks are counted by reference. Nothing shares one yet; a prefix cache will hold references of
// its own, seed a table with shared full blocks, and copy the last one on write.
//
// Threads: engine thread only. Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/graph/ops.h"
#include "runtime/model/step.h"

namespace strata::coordinator {

inline constexpr uint32_t kBlockPositions = ops::kKvBlockPositions;

struct KvGroupShape {
  uint32_t window = 0;       // positions that a token sees, itself included; 0: all
  uint32_t block_count = 0;  // the least that any stage holds
};

// A sequence's tables. Value-initialised by BlockManager::open.
struct BlockTables {
  struct Table {
    std::vector<int32_t> blocks;  // by index; -1: given back
    uint32_t first_held = 0;      // entries before this are given back
  };
  std::vector<Table> groups;
};

class BlockManager {
 public:
  explicit BlockManager(std::vector<KvGroupShape> groups);

  uint32_t group_count() const { return static_cast<uint32_t>(groups_.size()); }
  uint32_t free_blocks(uint32_t group) const;
  const KvGroupShape& group(uint32_t group) const { return groups_[group].shape; }

  BlockTables open() const;
  // Makes room for a row of positions [begin, end), and gives back what no position from `begin` on
  // can see. Appends what changed to `changes` under `slot`. False, with nothing changed, if blocks
  // are missing. Requires: rows of a sequence come in order, without gaps.
  bool extend(BlockTables& tables, uint32_t begin, uint32_t end, uint32_t slot,
              std::vector<BlockChange>& changes);
  // Gives back all blocks of the sequence and empties its tables.
  void release(BlockTables& tables);

  // True if a lone sequence of `positions` positions, fed in rows of at most `row_tokens`, finds
  // room when nothing else is live.
  bool can_ever_hold(uint32_t positions, uint32_t row_tokens) const;
  // Adds to `promised`, by group, the blocks that a sequence still lacks to hold `positions`
  // positions. For counting what admitted prompts will take.
  void add_missing(const BlockTables& tables, uint32_t positions, uint32_t row_tokens,
                   std::vector<uint32_t>& promised) const;
  // True if the free blocks cover what was promised. Requires: one entry per group.
  bool covers(const std::vector<uint32_t>& promised) const;

 private:
  struct Group {
    KvGroupShape shape;
    std::vector<int32_t> free;         // a stack
    std::vector<uint32_t> references;  // by block
  };

  // The most blocks that a sequence of `positions` positions holds at one time.
  static uint32_t blocks_held_max(const KvGroupShape& group, uint32_t positions,
                                  uint32_t row_tokens);
  static uint32_t first_visible(const KvGroupShape& group, uint32_t position);
  void drop(Group& group, int32_t block);

  std::vector<Group> groups_;
};

}  // namespace strata::coordinator
