#include "cli/address_file.h"

#include <cerrno>
#include <cstdio>

namespace strata::cli {

Status write_address_file(const std::string& path, const std::string& address) {
  const std::string temporary = path + ".new";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return from_errno(errno, "cannot write " + temporary);
  const bool written = std::fputs((address + "\n").c_str(), file) >= 0;
  if (std::fclose(file) != 0 || !written) return from_errno(errno, "cannot write " + temporary);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return from_errno(errno, "cannot write " + path);
  }
  return ok_status();
}

}  // namespace strata::cli
