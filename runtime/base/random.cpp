#include "runtime/base/random.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <cerrno>
#include <vector>

#include "runtime/base/check.h"

namespace strata {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::getrandom(bytes.data(), bytes.size(), 0);
    STRATA_CHECK(got > 0 || errno == EINTR, "the system gives no random bytes");
    if (got > 0) bytes = bytes.subspan(static_cast<size_t>(got));
  }
}

uint64_t random_u64() {
  uint64_t value = 0;
  fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

std::string random_hex(size_t bytes) {
  std::vector<std::byte> values(bytes);
  fill_random(values);
  std::string text;
  for (const std::byte value : values) text += fmt::format("{:02x}", std::to_integer<int>(value));
  return text;
}

}  // namespace strata
