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

// Which file it is and in what state: equal for two openings of a file that was not written
// between.
struct FileIdentity {
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;

  bool operator==(const FileIdentity&) const = default;
};

// Threads: const members from any thread.
class MappedFile {
 public:
  // Errors: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT for what is not a regular file.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return identity_.size; }
  // As it was when the file was opened.
  const FileIdentity& identity() const { return identity_; }
  std::span<const std::byte> bytes() const { return {data_, static_cast<size_t>(size())}; }

  // Hints that [offset, offset + size) will be read soon.
  void will_need(uint64_t offset, uint64_t size) const;
  // Gives back the pages that lie wholly inside the range; a later read maps them again.
  void drop(uint64_t offset, uint64_t size) const;
  // FAILED_PRECONDITION "model changed on disk" if the file was truncated, replaced in place or
  // rewritten since it was opened. Reading a mapping past a truncation raises SIGBUS, so callers
  // check before they read a large range.
  Status check_unchanged() const;
  // Copies [offset, offset + out.size()) by reading, not through the mapping: safe for a file that
  // may be truncated meanwhile. Errors: as check_unchanged(); OUT_OF_RANGE beyond the opened size.
  Status read(uint64_t offset, std::span<std::byte> out) const;

 private:
  MappedFile(std::string path, int fd, const std::byte* data, const FileIdentity& identity);

  std::string path_;
  int fd_;
  const std::byte* data_;  // null for an empty file
  FileIdentity identity_;
};

}  // namespace strata
