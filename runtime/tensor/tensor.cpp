#include "runtime/tensor/tensor.h"

#include <fmt/format.h>

#include "runtime/base/checked_math.h"

namespace strata {

std::optional<Strides> dense_strides(DType dtype, const Dims& ne) {
  const DTypeTraits& traits = dtype_traits(dtype);
  const std::optional<uint64_t> row = row_bytes(dtype, ne[0]);
  if (!row) return std::nullopt;
  Strides nb = {traits.block_bytes, *row, 0, 0};
  for (int i = 2; i <= kMaxDims; ++i) {
    if (ne[i - 1] < 0) return std::nullopt;
    const std::optional<uint64_t> next = checked_mul(nb[i - 1], static_cast<uint64_t>(ne[i - 1]));
    if (!next) return std::nullopt;
    if (i < kMaxDims) nb[i] = *next;
  }
  return nb;
}

std::optional<uint64_t> dense_size_bytes(DType dtype, const Dims& ne) {
  const std::optional<Strides> nb = dense_strides(dtype, ne);
  if (!nb) return std::nullopt;
  return checked_mul((*nb)[kMaxDims - 1], static_cast<uint64_t>(ne[kMaxDims - 1]));
}

bool Tensor::is_contiguous() const {
  const std::optional<Strides> dense = dense_strides(dtype, ne);
  if (!dense) return false;
  if (nb[0] != (*dense)[0]) return false;
  for (int i = 1; i < kMaxDims; ++i) {
    // The stride of a dimension of one element is never used.
    if (ne[i] != 1 && nb[i] != (*dense)[i]) return false;
  }
  return true;
}

uint64_t Tensor::size_bytes() const {
  for (const int64_t n : ne) {
    if (n == 0) return 0;
  }
  const DTypeTraits& traits = dtype_traits(dtype);
  uint64_t size = traits.block_elements == 1
                      ? traits.block_bytes + static_cast<uint64_t>(ne[0] - 1) * nb[0]
                      : static_cast<uint64_t>(ne[0] / traits.block_elements) * nb[0];
  for (int i = 1; i < kMaxDims; ++i) size += static_cast<uint64_t>(ne[i] - 1) * nb[i];
  return size;
}

std::string shape_text(const Dims& ne) {
  int used = kMaxDims;
  while (used > 1 && ne[used - 1] == 1) --used;
  return fmt::format("{{{}}}", fmt::join(ne.begin(), ne.begin() + used, ", "));
}

std::string describe(const Tensor& tensor) {
  return fmt::format("{} {} {}", tensor.name.empty() ? op_name(tensor.op) : tensor.name,
                     dtype_name(tensor.dtype), shape_text(tensor.ne));
}

}  // namespace strata
