#include "runtime/memory/range_allocator.h"

#include <algorithm>
#include <bit>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"

namespace strata {
namespace {

// Far above any memory, far below what sums of sizes could overflow.
constexpr uint64_t kUnlimited = uint64_t{1} << 62;

}  // namespace

RangeAllocator::RangeAllocator(uint64_t alignment, uint64_t chunk_limit)
    : alignment_(alignment), chunk_limit_(std::min(chunk_limit, kUnlimited)) {
  STRATA_CHECK(std::has_single_bit(alignment), "an alignment that is no power of two");
  STRATA_CHECK(chunk_limit > 0, "chunks of no size");
}

MemoryRange RangeAllocator::allocate(uint64_t size) {
  if (size >= kUnlimited) return {};  // larger than any memory
  size = align_up(std::max<uint64_t>(size, 1), alignment_);
  Place place = find_hole(size);
  if (place.chunk < 0) place = find_tail(size);
  if (place.chunk < 0) place = new_chunk(size);
  if (place.chunk < 0) return {};
  return take(place, size);
}

void RangeAllocator::release(const MemoryRange& range) {
  STRATA_CHECK(range.chunk >= 0 && range.chunk < chunk_count(), "a range of another allocator");
  std::vector<FreeBlock>& free = chunks_[range.chunk].free;
  const auto next = std::lower_bound(
      free.begin(), free.end(), range.offset,
      [](const FreeBlock& block, uint64_t offset) { return block.offset < offset; });
  STRATA_CHECK(next == free.end() || range.end() <= next->offset, "a range released twice");
  STRATA_CHECK(next == free.begin() || std::prev(next)->end() <= range.offset,
               "a range released twice");
  used_bytes_ -= range.size;
  const bool joins_next = next != free.end() && range.end() == next->offset;
  const bool joins_previous = next != free.begin() && std::prev(next)->end() == range.offset;
  if (joins_previous && joins_next) {
    std::prev(next)->size += range.size + next->size;
    free.erase(next);
  } else if (joins_previous) {
    std::prev(next)->size += range.size;
  } else if (joins_next) {
    next->offset = range.offset;
    next->size += range.size;
  } else {
    free.insert(next, FreeBlock{range.offset, range.size});
  }
}

void RangeAllocator::add_chunk(uint64_t limit, std::vector<MemoryRange> occupied) {
  STRATA_CHECK(used_bytes_ == 0 && chunk_count() < kMaxChunks, "chunks are added first");
  std::sort(occupied.begin(), occupied.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.offset < b.offset; });
  Chunk& chunk = chunks_.emplace_back();
  chunk.limit = std::min(limit, kUnlimited);
  uint64_t begin = 0;
  for (const MemoryRange& range : occupied) {
    // The hole before it, in whole units; ranges may overlap when one tensor is read as parts.
    const uint64_t end = range.offset & ~(alignment_ - 1);
    if (end > begin) chunk.free.push_back({begin, end - begin});
    begin = std::max(begin, std::min(align_up(range.end(), alignment_), chunk.limit));
    chunk.peak = std::max(chunk.peak, std::min(range.end(), chunk.limit));
  }
  if (chunk.limit > begin) chunk.free.push_back({begin, chunk.limit - begin});
}

uint64_t RangeAllocator::peak_bytes() const {
  uint64_t sum = 0;
  for (const Chunk& chunk : chunks_) sum += chunk.peak;
  return sum;
}

std::vector<MemoryRange> RangeAllocator::free_ranges(int chunk) const {
  std::vector<MemoryRange> ranges;
  for (const FreeBlock& block : chunks_[chunk].free) {
    ranges.push_back({chunk, block.offset, block.size});
  }
  return ranges;
}

bool RangeAllocator::is_tail(const Chunk& chunk, size_t block) const {
  return chunk.free[block].end() == chunk.limit;
}

RangeAllocator::Place RangeAllocator::find_hole(uint64_t size) const {
  Place best;
  uint64_t best_size = UINT64_MAX;
  for (int c = 0; c < chunk_count(); ++c) {
    const Chunk& chunk = chunks_[c];
    for (size_t i = 0; i < chunk.free.size(); ++i) {
      const uint64_t have = chunk.free[i].size;
      if (is_tail(chunk, i) || have < size || have >= best_size) continue;
      best = {c, i};
      best_size = have;
    }
  }
  return best;
}

RangeAllocator::Place RangeAllocator::find_tail(uint64_t size) const {
  Place best;
  uint64_t best_growth = UINT64_MAX;
  for (int c = 0; c < chunk_count(); ++c) {
    const Chunk& chunk = chunks_[c];
    if (chunk.free.empty() || !is_tail(chunk, chunk.free.size() - 1)) continue;
    const FreeBlock& tail = chunk.free.back();
    if (tail.size < size) continue;
    const uint64_t end = tail.offset + size;
    const uint64_t growth = end > chunk.peak ? end - chunk.peak : 0;
    if (growth >= best_growth) continue;
    best = {c, chunk.free.size() - 1};
    best_growth = growth;
  }
  return best;
}

RangeAllocator::Place RangeAllocator::new_chunk(uint64_t least_size) {
  const int index = chunk_count();
  if (index == kMaxChunks) return {};
  Chunk& chunk = chunks_.emplace_back();
  chunk.limit = index == kMaxChunks - 1 ? UINT64_MAX : std::max(least_size, chunk_limit_);
  chunk.free.push_back({0, chunk.limit});
  return {index, 0};
}

MemoryRange RangeAllocator::take(Place place, uint64_t size) {
  Chunk& chunk = chunks_[place.chunk];
  FreeBlock& block = chunk.free[place.block];
  const MemoryRange range = {place.chunk, block.offset, size};
  block.offset += size;
  block.size -= size;
  if (block.size == 0) chunk.free.erase(chunk.free.begin() + static_cast<ptrdiff_t>(place.block));
  chunk.peak = std::max(chunk.peak, range.end());
  used_bytes_ += size;
  return range;
}

}  // namespace strata
