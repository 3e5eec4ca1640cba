// A bounds-checked cursor over little-endian bytes from a file or a peer.
//
// Every read either succeeds wholly or leaves the cursor where it was; nothing outside the given
// bytes is ever touched. Errors read "<name>: <reason> at offset N", N being where the failed read
// began, so that a person can look at the place in a hex editor.
//
// Threads: one at a time per object.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/status.h"

namespace strata {

static_assert(std::endian::native == std::endian::little, "files are read as they lie in memory");

class ByteReader {
 public:
  // Views `bytes`, which must outlive the reader. `name` is the file's or peer's name in errors.
  ByteReader(std::span<const std::byte> bytes, std::string name)
      : bytes_(bytes), name_(std::move(name)) {}

  uint64_t offset() const { return offset_; }
  uint64_t size() const { return bytes_.size(); }
  uint64_t remaining() const { return bytes_.size() - offset_; }
  const std::string& name() const { return name_; }

  // The next number, or none if fewer bytes remain. For loops over many values.
  template <typename T>
  std::optional<T> try_number() {
    static_assert(std::is_arithmetic_v<T>);
    if (remaining() < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }
  // The next `size` bytes as a view, or none if fewer remain; `size` may be any number at all.
  std::optional<std::string_view> try_bytes(uint64_t size) {
    if (size > remaining()) return std::nullopt;
    const std::string_view view(reinterpret_cast<const char*>(bytes_.data()) + offset_, size);
    offset_ += size;
    return view;
  }

  // As above, with INVALID_ARGUMENT "<name>: <reason> at offset N" in place of none.
  template <typename T>
  Result<T> number(std::string_view reason) {
    const std::optional<T> value = try_number<T>();
    if (!value) return error(reason);
    return *value;
  }
  Result<std::string_view> bytes(uint64_t size, std::string_view reason);

  // INVALID_ARGUMENT with the reason, here or at `offset`.
  Status error(std::string_view reason) const { return error_at(offset_, reason); }
  Status error_at(uint64_t offset, std::string_view reason) const;

 private:
  std::span<const std::byte> bytes_;
  std::string name_;
  uint64_t offset_ = 0;
};

}  // namespace strata
