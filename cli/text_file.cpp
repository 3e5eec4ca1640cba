#include "cli/text_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

namespace strata::cli {

Result<std::string> read_text_file(const std::string& path, size_t bytes_max) {
  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return from_errno(errno, fmt::format("cannot open {}", path));
  std::string text;
  char buffer[65536];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, file.get())) {
    text.append(buffer, got);
    if (text.size() > bytes_max) {
      return invalid_argument(
          fmt::format("{} has more than {} bytes, which is the most here", path, bytes_max));
    }
  }
  if (std::ferror(file.get()) != 0) return from_errno(errno, fmt::format("cannot read {}", path));
  return text;
}

}  // namespace strata::cli
