#include "runtime/memory/buffer.h"

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"

namespace strata {

void place(Tensor& tensor, Buffer& buffer, uint64_t offset) {
  STRATA_CHECK(tensor.buffer == nullptr, "placed twice: " + describe(tensor));
  STRATA_CHECK(offset % buffer.type().alignment() == 0, "unaligned: " + describe(tensor));
  STRATA_CHECK(range_fits(offset, buffer.type().allocation_size(tensor), buffer.size()),
               "past the end of its buffer: " + describe(tensor));
  tensor.buffer = &buffer;
  tensor.data = buffer.base() + offset;
}

void place_view(Tensor& tensor) {
  const Tensor* source = tensor.view_source;
  STRATA_CHECK(source != nullptr && source->buffer != nullptr,
               "a view of nothing placed: " + describe(tensor));
  tensor.buffer = source->buffer;
  tensor.data = source->data + tensor.view_offset;
}

}  // namespace strata
