// RangeAllocator: best fit over chunks of an address space, without any memory behind it.
//
// The graph allocator plays a graph through it: each result takes a range when it is made and gives
// it back at its last use. What is left at the end is the plan (an address for every result) and
// the largest end address per chunk, which is what to reserve.
//
//   chunk 0   |#### a ####|.....|## b ##|................→ grows up to the chunk's limit
//              0                hole      tail
//   chunk 1   |## c ##|..................................→
//
// A request takes the smallest hole that fits; only if there is none, a tail, the one whose chunk
// grows least; only if none has room, a new chunk. A chunk's limit is that of the buffer type; a
// single request beyond it gets a chunk of its own size (the buffer type will take it, or say why
// not), and the last of kMaxChunks chunks has no limit, so that planning never fails.
// Neighbouring free ranges are merged as soon as they touch.
//
// Threads: externally synchronised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata {

struct MemoryRange {
  int chunk = -1;  // -1: none
  uint64_t offset = 0;
  uint64_t size = 0;

  bool valid() const { return chunk >= 0; }
  uint64_t end() const { return offset + size; }
};

class RangeAllocator {
 public:
  static constexpr int kMaxChunks = 16;

  // Requires: alignment is a power of two, chunk_limit > 0.
  RangeAllocator(uint64_t alignment, uint64_t chunk_limit);

  // A range of at least `size` bytes at a multiple of the alignment; a size of 0 takes one unit of
  // alignment, so that every tensor has an address of its own. No range (chunk -1) only if chunks
  // added by the caller used up kMaxChunks, or for 2^62 bytes and more.
  MemoryRange allocate(uint64_t size);
  // Requires: `range` came from allocate() of this object and was not released since.
  void release(const MemoryRange& range);

  // For memory that holds something already: the next chunk is this one, at most `limit` bytes
  // large, and its `occupied` ranges are never handed out. Requires: nothing allocated yet.
  void add_chunk(uint64_t limit, std::vector<MemoryRange> occupied);

  int chunk_count() const { return static_cast<int>(chunks_.size()); }
  // Bytes to reserve for the chunk: the largest end address that was ever handed out.
  uint64_t chunk_peak(int chunk) const { return chunks_[chunk].peak; }
  // The sum over the chunks.
  uint64_t peak_bytes() const;
  // Bytes handed out at this moment.
  uint64_t used_bytes() const { return used_bytes_; }
  // Free ranges of the chunk by address, the tail included. For tests.
  std::vector<MemoryRange> free_ranges(int chunk) const;

 private:
  struct FreeBlock {
    uint64_t offset;
    uint64_t size;
    uint64_t end() const { return offset + size; }
  };
  struct Chunk {
    std::vector<FreeBlock> free;  // by address; never two that touch
    uint64_t limit = 0;
    uint64_t peak = 0;
  };
  struct Place {
    int chunk = -1;
    size_t block = 0;
  };

  bool is_tail(const Chunk& chunk, size_t block) const;
  Place find_hole(uint64_t size) const;
  Place find_tail(uint64_t size) const;
  Place new_chunk(uint64_t least_size);
  MemoryRange take(Place place, uint64_t size);

  const uint64_t alignment_;
  const uint64_t chunk_limit_;
  std::vector<Chunk> chunks_;
  uint64_t used_bytes_ = 0;
};

}  // namespace strata
