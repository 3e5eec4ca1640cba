#include "backends/cpu/packed_buffer_type.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "backends/cpu/repack.h"
#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/memory/host_buffer.h"
#include "runtime/topology/memory_spread.h"

namespace strata::cpu {
namespace {

// Bytes of one matrix of the tensor; none if they do not fit. Requires: can_pack(tensor).
std::optional<uint64_t> packed_matrix_bytes(const Tensor& tensor) {
  const auto group_bytes = packed_group_bytes(*packed_type(tensor.dtype), tensor.ne[0]);
  if (!group_bytes) return std::nullopt;
  return checked_mul(*group_bytes, static_cast<uint64_t>(divide_up(tensor.ne[1], kGroupRows)));
}

class PackedBufferType final : public BufferType {
 public:
  std::string_view name() const override { return "packed"; }
  uint64_t alignment() const override { return 64; }
  bool is_host() const override { return false; }
  uint64_t allocation_size(const Tensor& tensor) const override {
    if (!can_pack(tensor)) return tensor.size_bytes();
    const auto matrix = packed_matrix_bytes(tensor);
    const auto all = matrix ? checked_mul(*matrix, static_cast<uint64_t>(tensor.ne[2])) : matrix;
    return all.value_or(UINT64_MAX);
  }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const override;

 private:
  const MemorySpread spread_ = MemorySpread::of_this_process();
};

// Bounds of a run of whole rows, in rows counted over all matrices.
struct RowRange {
  int64_t begin;
  int64_t end;
};

Result<RowRange> whole_rows(const Tensor& tensor, uint64_t offset, uint64_t size) {
  STRATA_CHECK(range_fits(offset, size, tensor.size_bytes()), describe(tensor));
  if (!can_pack(tensor)) {
    return invalid_argument(describe(tensor) + ": packed memory holds matrices only",
                            "place vectors in host memory");
  }
  const uint64_t row_bytes = tensor.nb[1];
  if (offset % row_bytes != 0 || size % row_bytes != 0) {
    return invalid_argument(
        fmt::format("{}: bytes {} to {} are not whole rows of {} bytes, as packed memory needs",
                    describe(tensor), offset, offset + size, row_bytes));
  }
  return RowRange{static_cast<int64_t>(offset / row_bytes),
                  static_cast<int64_t>((offset + size) / row_bytes)};
}

class PackedBuffer final : public Buffer {
 public:
  PackedBuffer(const BufferType& type, std::unique_ptr<Buffer> memory)
      : type_(type), memory_(std::move(memory)) {}

  const BufferType& type() const override { return type_; }
  std::byte* base() const override { return memory_->base(); }
  uint64_t size() const override { return memory_->size(); }

  Status write(const Tensor& tensor, uint64_t offset, std::span<const std::byte> bytes) override {
    const RowRange rows = TRY(whole_rows(tensor, offset, bytes.size()));
    const int64_t rows_of_matrix = tensor.ne[1];
    const auto at_border = [&](int64_t row) { return row % rows_of_matrix % kGroupRows == 0; };
    if (!at_border(rows.begin) || !at_border(rows.end)) {
      return invalid_argument(
          fmt::format("{}: rows {} to {} do not begin and end at groups of {} rows, as packed "
                      "memory needs",
                      describe(tensor), rows.begin, rows.end, kGroupRows));
    }
    const PackedType type = *packed_type(tensor.dtype);
    const std::byte* from = bytes.data();
    for (int64_t row = rows.begin; row < rows.end;) {
      const int64_t left = rows_of_matrix - row % rows_of_matrix;
      const int count = static_cast<int>(std::min<int64_t>(left, kGroupRows));
      pack_group(type, tensor.ne[0], {from, tensor.nb[1], count}, group_of(tensor, row));
      from += static_cast<uint64_t>(count) * tensor.nb[1];
      row += count;
    }
    return ok_status();
  }

  Status read(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) const override {
    const RowRange rows = TRY(whole_rows(tensor, offset, bytes.size()));
    const PackedType type = *packed_type(tensor.dtype);
    std::byte* to = bytes.data();
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const int lane = static_cast<int>(row % tensor.ne[1] % kGroupRows);
      unpack_row(type, tensor.ne[0], group_of(tensor, row), lane, to);
      to += tensor.nb[1];
    }
    return ok_status();
  }

  void fill(std::byte value) override { memory_->fill(value); }

 private:
  static std::byte* group_of(const Tensor& tensor, int64_t row) {
    const uint64_t group_bytes = *packed_group_bytes(*packed_type(tensor.dtype), tensor.ne[0]);
    const uint64_t matrix = static_cast<uint64_t>(row / tensor.ne[1]);
    const uint64_t group = static_cast<uint64_t>(row % tensor.ne[1] / kGroupRows);
    return tensor.data + matrix * *packed_matrix_bytes(tensor) + group * group_bytes;
  }

  const BufferType& type_;
  std::unique_ptr<Buffer> memory_;
};

Result<std::unique_ptr<Buffer>> PackedBufferType::allocate(uint64_t size) const {
  std::unique_ptr<Buffer> memory = TRY(host_buffer_type().allocate(size));
  // Weights are streamed once a token: fewer, larger pages keep the prefetchers going. Only a hint.
  if (size > 0) madvise(memory->base(), size, MADV_HUGEPAGE);
  spread_.apply({memory->base(), size});
  return std::unique_ptr<Buffer>(new PackedBuffer(*this, std::move(memory)));
}

}  // namespace

const BufferType& packed_buffer_type() {
  static const PackedBufferType type;
  return type;
}

bool can_pack(const Tensor& tensor) {
  return packed_type(tensor.dtype).has_value() && tensor.ne[0] > 0 && tensor.ne[1] > 1 &&
         tensor.ne[2] > 0 && tensor.ne[3] == 1 && tensor.is_contiguous() &&
         tensor.ne[0] % dtype_traits(tensor.dtype).block_elements == 0;
}

}  // namespace strata::cpu
