// Buffer and BufferType: where tensors' bytes live, and the rules of a kind of memory.
//
// A BufferType is a kind of memory (host, pinned host, a device's own, the CPU's repacked weights,
// a mapped file) with its alignment and largest single buffer. A Buffer is one block of it. The
// layout of a tensor inside a buffer belongs to the buffer type: a type may hold rows as the file
// has them or rearranged, and only the ops that its device supports on it can read them; write()
// and read() always speak the plain layout of GGUF (docs/memory.md).
//
// Threads: BufferType from any thread; a Buffer externally synchronised, but writes to different
// tensors may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace strata {

class BufferType;

enum class BufferUsage : uint8_t { any, weights, compute };

class Buffer {
 public:
  virtual ~Buffer() = default;
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  virtual const BufferType& type() const = 0;
  // Address of the first byte, aligned to type().alignment(). Only an address: the host may
  // dereference it only if type().is_host().
  virtual std::byte* base() const = 0;
  virtual uint64_t size() const = 0;

  // Copies plain bytes into the tensor, `offset` bytes into it. A type that rearranges accepts
  // whole tensors or whole rows only. Requires: tensor.buffer is this one, the range lies in the
  // tensor. Errors: those of the device; INVALID_ARGUMENT for a range that the layout cannot take.
  virtual Status write(const Tensor& tensor, uint64_t offset, std::span<const std::byte> bytes) = 0;
  // The reverse of write().
  virtual Status read(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) const = 0;
  // Sets every byte.
  virtual void fill(std::byte value) = 0;

  // Schedulers prefer to run an op where its weights are.
  BufferUsage usage = BufferUsage::any;
};

class BufferType {
 public:
  virtual ~BufferType() = default;

  virtual std::string_view name() const = 0;
  // A power of two; every tensor starts at a multiple of it.
  virtual uint64_t alignment() const = 0;
  // The largest single buffer in bytes; larger sets are spread over several.
  virtual uint64_t max_size() const { return UINT64_MAX; }
  // Bytes that the tensor takes in this memory; at least tensor.size_bytes() unless rearranged.
  virtual uint64_t allocation_size(const Tensor& tensor) const { return tensor.size_bytes(); }
  // True if the host can dereference addresses and finds the plain layout there.
  virtual bool is_host() const = 0;
  // Errors: RESOURCE_EXHAUSTED with need and have.
  virtual Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const = 0;
};

// Gives the tensor the address `offset` bytes into the buffer. Requires: it fits, it is aligned,
// the tensor has no buffer yet.
void place(Tensor& tensor, Buffer& buffer, uint64_t offset);
// Gives a view the memory of its source. Requires: the source is placed.
void place_view(Tensor& tensor);

}  // namespace strata
