// DescribedBuffer: a kind of memory without the memory.
//
// Tensors placed in one look to planners as if they were loaded: assignment, splitting and
// measuring ask for type and usage only. Nobody may read or write there.
//
// Threads: immutable.
#pragma once

#include "runtime/memory/buffer.h"

namespace strata {

class DescribedBuffer final : public Buffer {
 public:
  // `type` must outlive the object.
  DescribedBuffer(const BufferType& type, BufferUsage described_usage) : type_(type) {
    usage = described_usage;
  }

  const BufferType& type() const override { return type_; }
  std::byte* base() const override { return nullptr; }
  uint64_t size() const override { return 0; }
  Status write(const Tensor&, uint64_t, std::span<const std::byte>) override { return refuse(); }
  Status read(const Tensor&, uint64_t, std::span<std::byte>) const override { return refuse(); }
  void fill(std::byte) override {}

 private:
  static Status refuse() { return internal_error("a description of memory holds no bytes"); }

  const BufferType& type_;
};

}  // namespace strata
