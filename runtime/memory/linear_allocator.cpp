#include "runtime/memory/linear_allocator.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/checked_math.h"
#include "runtime/base/human.h"

namespace strata {

void LinearAllocator::add(Tensor& tensor) {
  if (tensor.view_source != nullptr) {
    views_.push_back(&tensor);
    return;
  }
  if (tensor.buffer != nullptr) return;
  // What no memory can hold is refused by allocate(); here its size must not wrap to a small one.
  const uint64_t size =
      checked_align_up(std::max<uint64_t>(type_.allocation_size(tensor), 1), type_.alignment())
          .value_or(UINT64_MAX);
  if (buffer_sizes_.empty() || !range_fits(buffer_sizes_.back(), size, type_.max_size())) {
    buffer_sizes_.push_back(0);
  }
  places_.push_back({&tensor, buffer_sizes_.size() - 1, buffer_sizes_.back()});
  buffer_sizes_.back() += size;
}

uint64_t LinearAllocator::total_bytes() const {
  uint64_t sum = 0;
  for (const uint64_t size : buffer_sizes_) sum = checked_add(sum, size).value_or(UINT64_MAX);
  return sum;
}

Result<std::vector<std::unique_ptr<Buffer>>> LinearAllocator::allocate(BufferUsage usage) {
  for (const Place& place : places_) {
    const uint64_t size = type_.allocation_size(*place.tensor);
    if (size > type_.max_size()) {
      return invalid_argument(fmt::format(
          "tensor {} takes {}, but the largest buffer of {} memory is {}", describe(*place.tensor),
          human_bytes(size), type_.name(), human_bytes(type_.max_size())));
    }
  }
  std::vector<std::unique_ptr<Buffer>> buffers;
  for (const uint64_t size : buffer_sizes_) {
    Result<std::unique_ptr<Buffer>> buffer = type_.allocate(size);
    if (!buffer.ok()) {
      return buffer.status().with_context(fmt::format(
          "buffer {} of {} ({} of {} in {} memory)", buffers.size() + 1, buffer_sizes_.size(),
          human_bytes(size), human_bytes(total_bytes()), type_.name()));
    }
    buffer.value()->usage = usage;
    buffers.push_back(std::move(buffer).value());
  }
  for (const Place& place : places_)
    strata::place(*place.tensor, *buffers[place.buffer], place.offset);
  for (Tensor* view : views_) {
    if (view->view_source->buffer != nullptr) place_view(*view);
  }
  places_.clear();
  views_.clear();
  buffer_sizes_.clear();
  return buffers;
}

}  // namespace strata
