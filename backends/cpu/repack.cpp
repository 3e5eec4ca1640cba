#include "backends/cpu/repack.h"

#include <cstring>
#include <type_traits>

#include "backends/cpu/kernels/packed_layout.h"
#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/tensor/quant_blocks.h"

namespace strata::cpu {
namespace {

// --- bits of a block: eight quads of four weights, a byte each ----------------------------------

uint32_t load_u32(const void* p) {
  uint32_t value;
  std::memcpy(&value, p, 4);
  return value;
}

// Exchanges the bits that `mask` has with those `distance` above them.
uint32_t exchange_bits(uint32_t x, int distance, uint32_t mask) {
  const uint32_t differ = (x >> distance ^ x) & mask;
  return x ^ differ ^ differ << distance;
}

// Bit 4i + c of x to bit i of byte c. As numbers of bits, (i2 i1 i0 c1 c0) becomes (c1 c0 i2 i1
// i0), two places of the number exchanged at a time.
uint32_t spread_fifth_bits(uint32_t x) {
  x = exchange_bits(x, 14, 0x0000cccc);
  x = exchange_bits(x, 7, 0x00aa00aa);
  x = exchange_bits(x, 2, 0x0c0c0c0c);
  return exchange_bits(x, 1, 0x22222222);
}

// The reverse.
uint32_t gather_fifth_bits(uint32_t x) {
  x = exchange_bits(x, 1, 0x22222222);
  x = exchange_bits(x, 2, 0x0c0c0c0c);
  x = exchange_bits(x, 7, 0x00aa00aa);
  return exchange_bits(x, 14, 0x0000cccc);
}

// --- access to a group's bytes ------------------------------------------------------------------

// One row's bytes in a chunk: where each header field and line has its place.
struct ChunkRow {
  std::byte* chunk;
  int row;

  std::byte* half(int offset) const { return chunk + offset + 2 * row; }
  std::byte* byte(int offset) const { return chunk + offset + row; }
  std::byte* word(int offset) const { return chunk + offset + 4 * row; }
};

void copy(std::byte* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }

// --- one row of a chunk, per type: pack() and unpack() are each other's inverse
// -------------------

template <typename Block>
constexpr bool kHasMinimum = std::is_same_v<Block, BlockQ4_1> || std::is_same_v<Block, BlockQ5_1>;
template <typename Block>
constexpr bool kHasFifthBits = std::is_same_v<Block, BlockQ5_0> || std::is_same_v<Block, BlockQ5_1>;

// Q4_0, Q4_1, Q5_0, Q5_1.
template <typename Layout, typename Block>
void pack_blocks(const Block* blocks, int count, ChunkRow to) {
  for (int b = 0; b < count; ++b) {
    const int at = Layout::header_bytes + b * Layout::block_bytes;
    copy(to.half(b * PackedHeader::second_d), &blocks[b].d, 2);
    if constexpr (kHasMinimum<Block>) copy(to.half(PackedHeader::minimum), &blocks[b].m, 2);
    if constexpr (kHasFifthBits<Block>) {
      const uint32_t high = spread_fifth_bits(load_u32(blocks[b].qh));
      copy(to.word(at), &high, 4);
    }
    for (int j = 0; j < 4; ++j) {
      copy(to.word(at + Layout::high_bytes + 64 * j), blocks[b].qs + 4 * j, 4);
    }
  }
}

template <typename Layout, typename Block>
void unpack_blocks(ChunkRow from, int count, Block* blocks) {
  for (int b = 0; b < count; ++b) {
    const int at = Layout::header_bytes + b * Layout::block_bytes;
    std::memcpy(&blocks[b].d, from.half(b * PackedHeader::second_d), 2);
    if constexpr (kHasMinimum<Block>) {
      std::memcpy(&blocks[b].m, from.half(PackedHeader::minimum), 2);
    }
    if constexpr (kHasFifthBits<Block>) {
      const uint32_t high = gather_fifth_bits(load_u32(from.word(at)));
      std::memcpy(blocks[b].qh, &high, 4);
    }
    for (int j = 0; j < 4; ++j) {
      std::memcpy(blocks[b].qs + 4 * j, from.word(at + Layout::high_bytes + 64 * j), 4);
    }
  }
}

constexpr uint32_t kOffset128 = 0x80808080;

void pack_q8_0(const BlockQ8_0* blocks, int count, ChunkRow to) {
  for (int b = 0; b < count; ++b) {
    copy(to.half(b * PackedHeader::second_d), &blocks[b].d, 2);
    for (int j = 0; j < 8; ++j) {
      const uint32_t quad = load_u32(blocks[b].qs + 4 * j) ^ kOffset128;
      copy(to.word(LayoutQ8_0::header_bytes + b * LayoutQ8_0::block_bytes + 64 * j), &quad, 4);
    }
  }
}

void unpack_q8_0(ChunkRow from, int count, BlockQ8_0* blocks) {
  for (int b = 0; b < count; ++b) {
    std::memcpy(&blocks[b].d, from.half(b * PackedHeader::second_d), 2);
    for (int j = 0; j < 8; ++j) {
      const int at = LayoutQ8_0::header_bytes + b * LayoutQ8_0::block_bytes + 64 * j;
      const uint32_t quad = load_u32(from.word(at)) ^ kOffset128;
      std::memcpy(blocks[b].qs + 4 * j, &quad, 4);
    }
  }
}

constexpr uint32_t kLowNibbles = 0x0f0f0f0f;

// Q4_K and Q5_K.
template <typename Layout, typename Block>
void pack_k_blocks(const Block* block, ChunkRow to) {
  copy(to.half(0), &block->d, 2);
  copy(to.half(PackedHeader::minimum), &block->dmin, 2);
  const KScales scales = unpack_k_scales(block->scales);
  for (int s = 0; s < 8; ++s) {
    copy(to.byte(PackedHeader::k_scales + 32 * s), &scales.sc[s], 1);
    copy(to.byte(PackedHeader::k_scales + 32 * s + 16), &scales.m[s], 1);
    const int at = Layout::header_bytes + s * Layout::block_bytes;
    if constexpr (std::is_same_v<Block, BlockQ5_K>) {
      uint32_t high = 0;
      for (int i = 0; i < 8; ++i) high |= (load_u32(block->qh + 4 * i) >> s & 0x01010101) << i;
      copy(to.word(at), &high, 4);
    }
    const uint8_t* qs = block->qs + 32 * (s / 2);
    const int shift = s % 2 * 4;
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = load_u32(qs + 4 * j) >> shift & kLowNibbles;
      const uint32_t high = load_u32(qs + 16 + 4 * j) >> shift & kLowNibbles;
      const uint32_t line = low | high << 4;
      copy(to.word(at + Layout::high_bytes + 64 * j), &line, 4);
    }
  }
}

void or_u32(uint8_t* p, uint32_t bits) {
  const uint32_t value = load_u32(p) | bits;
  std::memcpy(p, &value, 4);
}

template <typename Layout, typename Block>
void unpack_k_blocks(ChunkRow from, Block* block) {
  *block = {};
  std::memcpy(&block->d, from.half(0), 2);
  std::memcpy(&block->dmin, from.half(PackedHeader::minimum), 2);
  KScales scales;
  for (int s = 0; s < 8; ++s) {
    scales.sc[s] = std::to_integer<uint8_t>(*from.byte(PackedHeader::k_scales + 32 * s));
    scales.m[s] = std::to_integer<uint8_t>(*from.byte(PackedHeader::k_scales + 32 * s + 16));
    const int at = Layout::header_bytes + s * Layout::block_bytes;
    if constexpr (std::is_same_v<Block, BlockQ5_K>) {
      const uint32_t high = load_u32(from.word(at));
      for (int i = 0; i < 8; ++i) or_u32(block->qh + 4 * i, (high >> i & 0x01010101) << s);
    }
    uint8_t* qs = block->qs + 32 * (s / 2);
    const int shift = s % 2 * 4;
    for (int j = 0; j < 4; ++j) {
      const uint32_t line = load_u32(from.word(at + Layout::high_bytes + 64 * j));
      or_u32(qs + 4 * j, (line & kLowNibbles) << shift);
      or_u32(qs + 16 + 4 * j, (line >> 4 & kLowNibbles) << shift);
    }
  }
  pack_k_scales(scales, block->scales);
}

// Where sub-block s of 32 weights has its bits in a BlockQ6_K.
struct Q6Place {
  int low_at;
  int low_shift;
  int high_at;
  int high_shift;
};
Q6Place q6_place(int s) {
  const int half = s / 4;
  const int quarter = s % 4;
  return {64 * half + 32 * (quarter % 2), quarter / 2 * 4, 32 * half, 2 * quarter};
}

constexpr uint32_t kLowPairs = 0x03030303;

void pack_q6_k(const BlockQ6_K* block, ChunkRow to) {
  copy(to.half(0), &block->d, 2);
  for (int s = 0; s < 8; ++s) {
    copy(to.byte(PackedHeader::q6_k_scales + 32 * s), &block->scales[2 * s], 1);
    copy(to.byte(PackedHeader::q6_k_scales + 32 * s + 16), &block->scales[2 * s + 1], 1);
    const int at = LayoutQ6_K::header_bytes + s * LayoutQ6_K::block_bytes;
    const Q6Place place = q6_place(s);
    for (int line = 0; line < 2; ++line) {
      uint32_t high = 0;
      for (int i = 0; i < 4; ++i) {
        const uint32_t quad = load_u32(block->qh + place.high_at + 16 * line + 4 * i);
        high |= (quad >> place.high_shift & kLowPairs) << (2 * i);
      }
      copy(to.word(at + 64 * line), &high, 4);
    }
    const uint8_t* ql = block->ql + place.low_at;
    for (int j = 0; j < 4; ++j) {
      const uint32_t low = load_u32(ql + 4 * j) >> place.low_shift & kLowNibbles;
      const uint32_t high = load_u32(ql + 16 + 4 * j) >> place.low_shift & kLowNibbles;
      const uint32_t line = low | high << 4;
      copy(to.word(at + LayoutQ6_K::high_bytes + 64 * j), &line, 4);
    }
  }
}

void unpack_q6_k(ChunkRow from, BlockQ6_K* block) {
  *block = {};
  std::memcpy(&block->d, from.half(0), 2);
  for (int s = 0; s < 8; ++s) {
    std::memcpy(&block->scales[2 * s], from.byte(PackedHeader::q6_k_scales + 32 * s), 1);
    std::memcpy(&block->scales[2 * s + 1], from.byte(PackedHeader::q6_k_scales + 32 * s + 16), 1);
    const int at = LayoutQ6_K::header_bytes + s * LayoutQ6_K::block_bytes;
    const Q6Place place = q6_place(s);
    for (int line = 0; line < 2; ++line) {
      const uint32_t high = load_u32(from.word(at + 64 * line));
      for (int i = 0; i < 4; ++i) {
        or_u32(block->qh + place.high_at + 16 * line + 4 * i, (high >> (2 * i) & kLowPairs)
                                                                  << place.high_shift);
      }
    }
    uint8_t* ql = block->ql + place.low_at;
    for (int j = 0; j < 4; ++j) {
      const uint32_t line = load_u32(from.word(at + LayoutQ6_K::high_bytes + 64 * j));
      or_u32(ql + 4 * j, (line & kLowNibbles) << place.low_shift);
      or_u32(ql + 16 + 4 * j, (line >> 4 & kLowNibbles) << place.low_shift);
    }
  }
}

// --- types by their traits
// ------------------------------------------------------------------------

// How a block type maps chunks of a plain row (`file_blocks` structs) to chunks of a group.
template <typename LayoutType, typename BlockType, int kElements>
struct BlockFormat {
  using Layout = LayoutType;
  using Block = BlockType;
  static constexpr int elements = kElements;                           // of a Block
  static constexpr int file_blocks = 32 * Layout::blocks / kElements;  // per chunk

  static void pack(const Block* blocks, int count, ChunkRow to) {
    if constexpr (std::is_same_v<Block, BlockQ8_0>) {
      pack_q8_0(blocks, count, to);
    } else if constexpr (std::is_same_v<Block, BlockQ6_K>) {
      pack_q6_k(blocks, to);
    } else if constexpr (kElements == 256) {
      pack_k_blocks<Layout>(blocks, to);
    } else {
      pack_blocks<Layout>(blocks, count, to);
    }
  }
  static void unpack(ChunkRow from, int count, Block* blocks) {
    if constexpr (std::is_same_v<Block, BlockQ8_0>) {
      unpack_q8_0(from, count, blocks);
    } else if constexpr (std::is_same_v<Block, BlockQ6_K>) {
      unpack_q6_k(from, blocks);
    } else if constexpr (kElements == 256) {
      unpack_k_blocks<Layout>(from, blocks);
    } else {
      unpack_blocks<Layout>(from, count, blocks);
    }
  }
};

template <int kBytes>
struct PlainFormat {
  static constexpr int bytes = kBytes;  // of an element
};

// Calls visit with the type's format.
template <typename Visitor>
auto with_format(PackedType type, Visitor visit) {
  switch (type) {
    case PackedType::f32:
      return visit(PlainFormat<4>());
    case PackedType::f16:
    case PackedType::bf16:
      return visit(PlainFormat<2>());
    case PackedType::q4_0:
      return visit(BlockFormat<LayoutQ4_0, BlockQ4_0, 32>());
    case PackedType::q4_1:
      return visit(BlockFormat<LayoutQ4_1, BlockQ4_1, 32>());
    case PackedType::q5_0:
      return visit(BlockFormat<LayoutQ5_0, BlockQ5_0, 32>());
    case PackedType::q5_1:
      return visit(BlockFormat<LayoutQ5_1, BlockQ5_1, 32>());
    case PackedType::q8_0:
      return visit(BlockFormat<LayoutQ8_0, BlockQ8_0, 32>());
    case PackedType::q4_k:
      return visit(BlockFormat<LayoutQ4_K, BlockQ4_K, 256>());
    case PackedType::q5_k:
      return visit(BlockFormat<LayoutQ5_K, BlockQ5_K, 256>());
    case PackedType::q6_k:
      return visit(BlockFormat<LayoutQ6_K, BlockQ6_K, 256>());
  }
  check_failed("a packed type", "unknown number", __FILE__, __LINE__);
}

template <typename Format>
constexpr bool kIsPlain = requires {
  Format::bytes;
};

template <typename Format>
void pack_row(Format, int64_t k, const std::byte* from, int row, std::byte* group) {
  if constexpr (kIsPlain<Format>) {
    for (int64_t i = 0; i < k; ++i) {
      std::memcpy(group + (i * kGroupRows + row) * Format::bytes, from + i * Format::bytes,
                  Format::bytes);
    }
  } else {
    using Layout = typename Format::Layout;
    typename Format::Block blocks[Format::file_blocks];
    for (int64_t left = k / Format::elements; left > 0; left -= Format::file_blocks) {
      const int count = static_cast<int>(left < Format::file_blocks ? left : Format::file_blocks);
      std::memcpy(blocks, from, sizeof(blocks[0]) * static_cast<size_t>(count));
      Format::pack(blocks, count, {group, row});
      from += sizeof(blocks);
      group += Layout::header_bytes + Layout::blocks * Layout::block_bytes;
    }
  }
}

template <typename Format>
void unpack_row_as(Format, int64_t k, const std::byte* group, int row, std::byte* to) {
  if constexpr (kIsPlain<Format>) {
    for (int64_t i = 0; i < k; ++i) {
      std::memcpy(to + i * Format::bytes, group + (i * kGroupRows + row) * Format::bytes,
                  Format::bytes);
    }
  } else {
    using Layout = typename Format::Layout;
    typename Format::Block blocks[Format::file_blocks];
    for (int64_t left = k / Format::elements; left > 0; left -= Format::file_blocks) {
      const int count = static_cast<int>(left < Format::file_blocks ? left : Format::file_blocks);
      Format::unpack({const_cast<std::byte*>(group), row}, count, blocks);
      std::memcpy(to, blocks, sizeof(blocks[0]) * static_cast<size_t>(count));
      to += sizeof(blocks);
      group += Layout::header_bytes + Layout::blocks * Layout::block_bytes;
    }
  }
}

template <typename Format>
std::optional<uint64_t> group_bytes_of(Format, int64_t k) {
  if constexpr (kIsPlain<Format>) {
    const auto bytes = checked_mul(static_cast<uint64_t>(k), uint64_t{Format::bytes} * kGroupRows);
    return bytes ? checked_align_up(*bytes, 64) : std::nullopt;
  } else {
    using Layout = typename Format::Layout;
    const uint64_t blocks = static_cast<uint64_t>(k) / kBlockElements;
    const uint64_t chunks = (blocks + Layout::blocks - 1) / Layout::blocks;
    const auto headers = checked_mul(chunks, uint64_t{Layout::header_bytes});
    const auto lines = checked_mul(blocks, uint64_t{Layout::block_bytes});
    return headers && lines ? checked_add(*headers, *lines) : std::nullopt;
  }
}

}  // namespace

std::optional<PackedType> packed_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return PackedType::f32;
    case DType::f16:
      return PackedType::f16;
    case DType::bf16:
      return PackedType::bf16;
    case DType::q4_0:
      return PackedType::q4_0;
    case DType::q4_1:
      return PackedType::q4_1;
    case DType::q5_0:
      return PackedType::q5_0;
    case DType::q5_1:
      return PackedType::q5_1;
    case DType::q8_0:
      return PackedType::q8_0;
    case DType::q4_k:
      return PackedType::q4_k;
    case DType::q5_k:
      return PackedType::q5_k;
    case DType::q6_k:
      return PackedType::q6_k;
    default:
      return std::nullopt;
  }
}

std::optional<uint64_t> packed_group_bytes(PackedType type, int64_t k) {
  return with_format(type, [&](auto format) { return group_bytes_of(format, k); });
}

void pack_group(PackedType type, int64_t k, const PlainRows& rows, std::byte* group) {
  if (rows.count < kGroupRows) std::memset(group, 0, *packed_group_bytes(type, k));
  with_format(type, [&](auto format) {
    for (int row = 0; row < rows.count; ++row) {
      pack_row(format, k, rows.data + static_cast<uint64_t>(row) * rows.row_bytes, row, group);
    }
  });
}

void unpack_row(PackedType type, int64_t k, const std::byte* group, int row, std::byte* out) {
  with_format(type, [&](auto format) { unpack_row_as(format, k, group, row, out); });
}

}  // namespace strata::cpu
