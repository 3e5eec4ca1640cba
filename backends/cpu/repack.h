// Rearranges plain GGUF rows into groups of 16 interleaved rows, and back.
//
// The layout stands in kernels/packed_layout.h. Plain C++, no ISA flags: it runs once per load, and
// for each use of weights that stay in a mapped file. Threads: any; writes only to `out`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "backends/cpu/kernels/matmul_kernels.h"
#include "runtime/tensor/dtype.h"

namespace strata::cpu {

// The kernels' number of a type; none for types without kernels.
std::optional<PackedType> packed_type(DType dtype);

// Bytes of a packed group of 16 rows of k elements; a multiple of 64. Requires: a packed type, k a
// whole number of blocks. None if the size does not fit.
std::optional<uint64_t> packed_group_bytes(PackedType type, int64_t k);

// Rows as the file has them.
struct PlainRows {
  const std::byte* data = nullptr;
  uint64_t row_bytes = 0;  // from one row to the next
  int count = 0;           // 1..16; the missing ones are packed as zeros
};

// Writes one group. Requires: `group` has packed_group_bytes() and is 64-byte aligned.
void pack_group(PackedType type, int64_t k, const PlainRows& rows, std::byte* group);
// The file's bytes of one row of a group, exactly.
void unpack_row(PackedType type, int64_t k, const std::byte* group, int row, std::byte* out);

}  // namespace strata::cpu
