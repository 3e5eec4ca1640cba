#include "runtime/memory/host_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/human.h"

namespace strata {
namespace {

constexpr uint64_t kAlignment = 64;

class HostBufferType final : public BufferType {
 public:
  std::string_view name() const override { return "host"; }
  uint64_t alignment() const override { return kAlignment; }
  bool is_host() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t size) const override;
};

// The layout of a mapped file: tensors start at GGUF's alignment, which may be as small as 1.
class WrappedBufferType final : public BufferType {
 public:
  std::string_view name() const override { return "mapped"; }
  uint64_t alignment() const override { return 1; }
  bool is_host() const override { return true; }
  Result<std::unique_ptr<Buffer>> allocate(uint64_t) const override {
    return unimplemented("mapped memory comes from a file, it cannot be allocated");
  }
};

const WrappedBufferType& wrapped_buffer_type() {
  static const WrappedBufferType type;
  return type;
}

class PlainBuffer : public Buffer {
 public:
  PlainBuffer(const BufferType& type, std::byte* base, uint64_t size)
      : type_(type), base_(base), size_(size) {}

  const BufferType& type() const override { return type_; }
  std::byte* base() const override { return base_; }
  uint64_t size() const override { return size_; }

  Status write(const Tensor& tensor, uint64_t offset, std::span<const std::byte> bytes) override {
    STRATA_CHECK(range_fits(offset, bytes.size(), tensor.size_bytes()), describe(tensor));
    if (!bytes.empty()) std::memcpy(tensor.data + offset, bytes.data(), bytes.size());
    return ok_status();
  }
  Status read(const Tensor& tensor, uint64_t offset, std::span<std::byte> bytes) const override {
    STRATA_CHECK(range_fits(offset, bytes.size(), tensor.size_bytes()), describe(tensor));
    if (!bytes.empty()) std::memcpy(bytes.data(), tensor.data + offset, bytes.size());
    return ok_status();
  }
  void fill(std::byte value) override {
    if (size_ > 0) std::memset(base_, static_cast<int>(value), size_);
  }

 protected:
  const BufferType& type_;
  std::byte* base_;
  uint64_t size_;
};

class HostBuffer final : public PlainBuffer {
 public:
  using PlainBuffer::PlainBuffer;
  ~HostBuffer() override {
    if (size_ > 0) munmap(base_, size_);
  }
};

class WrappedBuffer final : public PlainBuffer {
 public:
  WrappedBuffer(std::span<const std::byte> bytes, std::shared_ptr<const void> keep_alive)
      : PlainBuffer(wrapped_buffer_type(), const_cast<std::byte*>(bytes.data()), bytes.size()),
        keep_alive_(std::move(keep_alive)) {}
  Status write(const Tensor& tensor, uint64_t, std::span<const std::byte>) override {
    return failed_precondition("mapped memory is read-only: " + describe(tensor));
  }
  void fill(std::byte) override { STRATA_CHECK(false, "mapped memory is read-only"); }

 private:
  std::shared_ptr<const void> keep_alive_;
};

Result<std::unique_ptr<Buffer>> HostBufferType::allocate(uint64_t size) const {
  if (size == 0) return std::unique_ptr<Buffer>(new HostBuffer(*this, nullptr, 0));
  void* base = size > INT64_MAX ? MAP_FAILED
                                : mmap(nullptr, size, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    return resource_exhausted(fmt::format("cannot allocate {} of host memory", human_bytes(size)));
  }
  return std::unique_ptr<Buffer>(new HostBuffer(*this, static_cast<std::byte*>(base), size));
}

}  // namespace

const BufferType& host_buffer_type() {
  static const HostBufferType type;
  return type;
}

Result<std::unique_ptr<Buffer>> wrap_host_memory(std::span<const std::byte> bytes,
                                                 std::shared_ptr<const void> keep_alive) {
  return std::unique_ptr<Buffer>(new WrappedBuffer(bytes, std::move(keep_alive)));
}

}  // namespace strata
