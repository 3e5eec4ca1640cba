#include "runtime/base/byte_reader.h"

#include <fmt/format.h>

namespace strata {

Result<std::string_view> ByteReader::bytes(uint64_t size, std::string_view reason) {
  const std::optional<std::string_view> view = try_bytes(size);
  if (!view) return error(reason);
  return *view;
}

Status ByteReader::error_at(uint64_t offset, std::string_view reason) const {
  return invalid_argument(fmt::format("{}: {} at offset {}", name_, reason, offset));
}

}  // namespace strata
