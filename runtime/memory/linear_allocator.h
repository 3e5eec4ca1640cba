// LinearAllocator: places tensors once, one behind the other. For weights and KV caches.
//
// A set that exceeds the buffer type's largest buffer is spread over several, in the order of the
// tensors; a tensor is never cut. The same object measures (buffer_sizes() and total_bytes()
// allocate nothing) and allocates, so that what was planned is what is taken:
//
//   LinearAllocator weights(device.weight_buffer_types()[0]);
//   for (Tensor& tensor : tensors) weights.add(tensor);
//   uint64_t need = weights.total_bytes();
//   std::vector<std::unique_ptr<Buffer>> buffers = TRY(weights.allocate(BufferUsage::weights));
//
// Threads: externally synchronised. Owns: nothing; the caller keeps the buffers as long as the
// tensors are used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/memory/buffer.h"

namespace strata {

class LinearAllocator {
 public:
  explicit LinearAllocator(const BufferType& type) : type_(type) {}

  // Takes the tensor in. A tensor with memory already keeps it and costs nothing here; a view
  // costs nothing and is placed with its source.
  void add(Tensor& tensor);

  // Bytes of all buffers together: each tensor's allocation size, rounded up to the alignment.
  uint64_t total_bytes() const;
  // Sizes of the single buffers, none above the type's maximum unless one tensor alone is.
  const std::vector<uint64_t>& buffer_sizes() const { return buffer_sizes_; }

  // Allocates the buffers and places every tensor that was added; afterwards the object is empty.
  // Errors: RESOURCE_EXHAUSTED with the sum, the buffer that failed and what the device says;
  // INVALID_ARGUMENT for a tensor larger than the largest buffer. After an error no tensor is
  // placed and no buffer is held.
  Result<std::vector<std::unique_ptr<Buffer>>> allocate(BufferUsage usage);

 private:
  struct Place {
    Tensor* tensor;
    size_t buffer;
    uint64_t offset;
  };

  const BufferType& type_;
  std::vector<Place> places_;
  std::vector<Tensor*> views_;
  std::vector<uint64_t> buffer_sizes_;
};

}  // namespace strata
