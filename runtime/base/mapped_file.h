// A file mapped read-only, of which single byte ranges can be given back.
//
// A stage reads only the ranges of its own layers: mapping costs address space, not memory, and
// drop() tells the kernel that a range's pages are no longer wanted (after repacking, say).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace strata {

// Threads: const members from any thread.
class MappedFile {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT for what is not a regular file.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size_)}; }

  // Hints that [offset, offset + size) will be read soon.
  void will_need(uint64_t offset, uint64_t size) const;
  // Gives back the pages that lie wholly inside the range; a later read maps them again.
  void drop(uint64_t offset, uint64_t size) const;
  // FAILED_PRECONDITION "model changed on disk" if the file was truncated, replaced in place or
  // rewritten since it was opened. Reading a mapping past a truncation raises SIGBUS, so callers
  // check before they read a large range.
  Status check_unchanged() const;

 private:
  MappedFile(std::string path, int fd, const std::byte* data, uint64_t size, int64_t mtime_ns);

  std::string path_;
  int fd_;
  const std::byte* data_;  // null for an empty file
  uint64_t size_;
  int64_t mtime_ns_;
};

}  // namespace strata
