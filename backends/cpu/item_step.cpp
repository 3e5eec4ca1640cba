#include "backends/cpu/item_step.h"

namespace strata::cpu {
namespace {

Access whole(const Tensor& tensor) {
  Access access;
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

// The distance in bytes between neighbouring rows, or 0 if it is not always the same.
uint64_t even_row_stride(const Tensor& tensor) {
  uint64_t stride = 0;
  uint64_t rows = 1;
  for (size_t i = 1; i < kMaxDims; ++i) {
    if (tensor.ne[i] == 1) continue;
    if (stride == 0) {
      stride = tensor.nb[i];
    } else if (tensor.nb[i] != stride * rows) {
      return 0;
    }
    rows *= static_cast<uint64_t>(tensor.ne[i]);
  }
  return stride;
}

uint64_t row_bytes(const Tensor& tensor) {
  Tensor row;
  row.dtype = tensor.dtype;
  row.ne = {tensor.ne[0], 1, 1, 1};
  row.nb = tensor.nb;
  return row.size_bytes();
}

}  // namespace

void ItemStep::reads_all(const Tensor& tensor, Access::Kind kind) {
  Access access = whole(tensor);
  access.kind = kind;
  accesses_.push_back(access);
}

void ItemStep::writes_all(const Tensor& tensor) { writes(whole(tensor)); }

Access item_access(const Tensor& tensor, const Dims& shape, int64_t items) {
  Access access = whole(tensor);
  if (!has_rows_of(tensor, shape)) return access;
  const int64_t rows = tensor.row_count();
  const uint64_t bytes = row_bytes(tensor);
  const uint64_t stride = rows == 1 ? bytes : even_row_stride(tensor);
  if (stride == 0 || items == 0) return access;
  if (rows % items == 0) {
    const uint64_t rows_per_item = static_cast<uint64_t>(rows / items);
    access.item_stride = stride * rows_per_item;
    access.item_bytes = stride * (rows_per_item - 1) + bytes;
    access.is_even = true;
  } else if (items % rows == 0 && stride == bytes) {
    access.item_stride = bytes / static_cast<uint64_t>(items / rows);
    access.item_bytes = access.item_stride;
    access.is_even = true;
  }
  return access;
}

Access workspace_access(uint64_t offset, uint64_t item_bytes) {
  Access access;
  access.in_workspace = true;
  access.is_even = true;
  access.begin = offset;
  access.item_bytes = item_bytes;
  access.item_stride = item_bytes;
  return access;
}

int64_t row_parts(int64_t n) {
  const int64_t unit = n % 32 == 0 ? 32 : 1;
  int64_t parts = (n + kPartElements - 1) / kPartElements;
  while (parts > 1 && (n / unit) % parts != 0) ++parts;
  return parts < 1 ? 1 : parts;
}

}  // namespace strata::cpu
