// A file that is read, or mapped: whole while its header is parsed, afterwards only the ranges that
// somebody computes with.
//
// Mappings are guarded (guarded_mapping.h): a file that is truncated while it is used gives an
// error, not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/file_descriptor.h"
#include "runtime/base/guarded_mapping.h"
#include "runtime/base/mutex.h"
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
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return identity_.size; }
  // As it was when the file was opened.
  const FileIdentity& identity() const { return identity_; }
  // The whole file, mapped at the first call. Empty if that is refused.
  std::span<const std::byte> bytes() const;
  // Gives the whole mapping back; spans of bytes() are of no use afterwards.
  void unmap() const;
  // A mapping of one range. Errors: OUT_OF_RANGE beyond the opened size; those of mmap.
  Result<std::unique_ptr<GuardedMapping>> map(uint64_t offset, uint64_t size) const;

  // FAILED_PRECONDITION "model changed on disk" if the file was truncated, replaced in place or
  // rewritten since it was opened. Whoever read a mapping asks afterwards: what was gone was read
  // as zeros.
  Status check_unchanged() const;
  // Copies [offset, offset + out.size()) by reading, not through the mapping: safe for a file that
  // may be truncated meanwhile. Errors: as check_unchanged(); OUT_OF_RANGE beyond the opened size.
  Status read(uint64_t offset, std::span<std::byte> out) const;

 private:
  MappedFile(std::string path, FileDescriptor fd, const FileIdentity& identity)
      : path_(std::move(path)), fd_(std::move(fd)), identity_(identity) {}
  Status check_range(uint64_t offset, uint64_t size) const;

  const std::string path_;
  const FileDescriptor fd_;
  const FileIdentity identity_;
  mutable Mutex mutex_;
  mutable std::unique_ptr<GuardedMapping> whole_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata
