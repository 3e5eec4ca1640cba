#include "coordinator/engine/block_manager.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace strata::coordinator {

BlockManager::BlockManager(std::vector<KvGroupShape> groups) {
  for (const KvGroupShape& shape : groups) {
    Group group;
    group.shape = shape;
    group.references.assign(shape.block_count, 0);
    group.free.reserve(shape.block_count);
    for (uint32_t i = shape.block_count; i > 0; --i) {
      group.free.push_back(static_cast<int32_t>(i - 1));
    }
    groups_.push_back(std::move(group));
  }
}

uint32_t BlockManager::free_blocks(uint32_t group) const {
  return static_cast<uint32_t>(groups_[group].free.size());
}

BlockTables BlockManager::open() const {
  BlockTables tables;
  tables.groups.resize(groups_.size());
  return tables;
}

// The first block that a query at `position` or later can read.
uint32_t BlockManager::first_visible(const KvGroupShape& group, uint32_t position) {
  if (group.window == 0 || position < group.window) return 0;
  return (position - group.window + 1) / kBlockPositions;
}

void BlockManager::drop(Group& group, int32_t block) {
  uint32_t& count = group.references[static_cast<size_t>(block)];
  STRATA_CHECK(count > 0, "a block was given back twice");
  if (--count == 0) group.free.push_back(block);
}

bool BlockManager::extend(BlockTables& tables, uint32_t begin, uint32_t end, uint32_t slot,
                          std::vector<BlockChange>& changes) {
  STRATA_CHECK(tables.groups.size() == groups_.size(), "tables of another pipeline");
  STRATA_CHECK(begin < end, "an empty row");
  const uint32_t needed = (end + kBlockPositions - 1) / kBlockPositions;
  // Count first, so that a refusal changes nothing.
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockTables::Table& table = tables.groups[g];
    const uint32_t have = static_cast<uint32_t>(table.blocks.size());
    const uint32_t visible = std::min(first_visible(groups_[g].shape, begin), have);
    const uint32_t given_back = visible - std::min(visible, table.first_held);
    const uint32_t wanted = needed > have ? needed - have : 0;
    if (wanted > groups_[g].free.size() + given_back) return false;
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    BlockTables::Table& table = tables.groups[g];
    const uint32_t visible =
        std::min(first_visible(group.shape, begin), static_cast<uint32_t>(table.blocks.size()));
    for (; table.first_held < visible; ++table.first_held) {
      drop(group, table.blocks[table.first_held]);
      table.blocks[table.first_held] = -1;
    }
    while (table.blocks.size() < needed) {
      const int32_t block = group.free.back();
      group.free.pop_back();
      group.references[static_cast<size_t>(block)] = 1;
      changes.push_back({.slot = slot,
                         .group = static_cast<uint32_t>(g),
                         .index = static_cast<uint32_t>(table.blocks.size()),
                         .block = block});
      table.blocks.push_back(block);
    }
  }
  return true;
}

void BlockManager::release(BlockTables& tables) {
  for (size_t g = 0; g < tables.groups.size(); ++g) {
    for (const int32_t block : tables.groups[g].blocks) {
      if (block >= 0) drop(groups_[g], block);
    }
  }
  tables = open();
}

uint32_t BlockManager::blocks_held_max(const KvGroupShape& group, uint32_t positions,
                                       uint32_t row_tokens) {
  const uint32_t all = (positions + kBlockPositions - 1) / kBlockPositions;
  if (group.window == 0) return all;
  // A row of r tokens sees window - 1 positions before it, and may begin and end inside a block.
  const uint64_t seen = static_cast<uint64_t>(group.window) - 1 + row_tokens;
  const uint64_t windowed = (seen + kBlockPositions - 1) / kBlockPositions + 1;
  return static_cast<uint32_t>(std::min<uint64_t>(all, windowed));
}

bool BlockManager::can_ever_hold(uint32_t positions, uint32_t row_tokens) const {
  return std::all_of(groups_.begin(), groups_.end(), [&](const Group& group) {
    return blocks_held_max(group.shape, positions, row_tokens) <= group.shape.block_count;
  });
}

void BlockManager::add_missing(const BlockTables& tables, uint32_t positions, uint32_t row_tokens,
                               std::vector<uint32_t>& promised) const {
  promised.resize(groups_.size());
  for (size_t g = 0; g < groups_.size(); ++g) {
    const BlockTables::Table& table = tables.groups[g];
    const uint32_t held = static_cast<uint32_t>(table.blocks.size()) - table.first_held;
    const uint32_t needed = blocks_held_max(groups_[g].shape, positions, row_tokens);
    promised[g] += needed - std::min(needed, held);
  }
}

bool BlockManager::covers(const std::vector<uint32_t>& promised) const {
  STRATA_CHECK(promised.size() == groups_.size(), "one count per group");
  for (size_t g = 0; g < groups_.size(); ++g) {
    if (promised[g] > groups_[g].free.size()) return false;
  }
  return true;
}

}  // namespace strata::coordinator
