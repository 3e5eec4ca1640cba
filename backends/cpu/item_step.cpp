#include "backends/cpu/item_step.h"

#include <optional>

namespace strata::cpu {
namespace {

Access whole(Access::Kind kind, const Tensor& tensor) {
  Access access;
  access.kind = kind;
  access.begin = reinterpret_cast<uintptr_t>(tensor.data);
  access.item_bytes = tensor.size_bytes();
  return access;
}

bool has_rows_of(const Tensor& tensor, const Dims& shape) {
  for (size_t i = 1; i < kMaxDims; ++i) {
    if (tensor.ne[i] != shape[i]) return false;
  }
  return true;
}

// The distance in bytes between neighbouring rows, if it is always the same.
std::optional<uint64_t> even_row_stride(const Tensor& tensor, uint64_t of_one_row) {
  std::optional<uint64_t> stride;
  uint64_t rows = 1;
  for (size_t i = 1; i < kMaxDims; ++i) {
    if (tensor.ne[i] == 1) continue;
    if (!stride) {
      stride = tensor.nb[i];
    } else if (tensor.nb[i] != *stride * rows) {
      return std::nullopt;
    }
    rows *= static_cast<uint64_t>(tensor.ne[i]);
  }
  return stride.value_or(of_one_row);
}

uint64_t row_bytes(const Tensor& tensor) {
  Tensor row;
  row.dtype = tensor.dtype;
  row.ne = {tensor.ne[0], 1, 1, 1};
  row.nb = tensor.nb;
  return row.size_bytes();
}

}  // namespace

RowAddress ItemStep::read_rows(const Tensor& tensor, const Dims& shape) {
  touches(item_access(Access::Kind::read, tensor, shape, items_));
  return {tensor, shape};
}

RowAddress ItemStep::written_rows(const Tensor& tensor, const Dims& shape) {
  touches(item_access(Access::Kind::write, tensor, shape, items_));
  return {tensor, shape};
}

void ItemStep::reads_all(const Tensor& tensor, Access::Kind kind) { touches(whole(kind, tensor)); }

void ItemStep::writes_all(const Tensor& tensor) { touches(whole(Access::Kind::write, tensor)); }

Access item_access(Access::Kind kind, const Tensor& tensor, const Dims& shape, int64_t items) {
  Access access = whole(kind, tensor);
  const int64_t rows = tensor.row_count();
  if (!has_rows_of(tensor, shape) || items == 0 || rows == 0) return access;
  const uint64_t bytes = row_bytes(tensor);
  const std::optional<uint64_t> stride = even_row_stride(tensor, bytes);
  if (!stride) return access;
  if (rows % items == 0) {
    const uint64_t rows_per_item = static_cast<uint64_t>(rows / items);
    access.item_stride = *stride * rows_per_item;
    access.item_bytes = *stride * (rows_per_item - 1) + bytes;
    access.is_even = true;
  } else if (items % rows == 0 && *stride == bytes) {
    access.item_stride = bytes / static_cast<uint64_t>(items / rows);
    access.item_bytes = access.item_stride;
    access.is_even = true;
  }
  return access;
}

Access workspace_access(Access::Kind kind, uint64_t offset, uint64_t item_bytes) {
  Access access;
  access.kind = kind;
  access.in_workspace = true;
  access.is_even = true;
  access.begin = offset;
  access.item_bytes = item_bytes;
  access.item_stride = item_bytes;
  return access;
}

int64_t row_parts(int64_t n) {
  const int64_t units = n % 32 == 0 ? n / 32 : n;
  const int64_t fewest = (n + kPartElements - 1) / kPartElements;
  for (int64_t parts = fewest; parts > 1 && parts <= 8 * fewest; ++parts) {
    if (units % parts == 0) return parts;
  }
  return 1;
}

}  // namespace strata::cpu
