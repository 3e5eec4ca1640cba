#include "runtime/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/base/checked_math.h"
#include "runtime/base/human.h"

namespace strata {
namespace {

FileIdentity identity_of(const struct stat& info) {
  return {
      .device = info.st_dev,
      .inode = info.st_ino,
      .size = static_cast<uint64_t>(info.st_size),
      .mtime_ns = static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec};
}

}  // namespace

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return from_errno(errno, fmt::format("cannot open '{}'", path));
  struct stat info {};
  if (fstat(file.get(), &info) != 0) {
    return from_errno(errno, fmt::format("cannot read the size of '{}'", path));
  }
  if (!S_ISREG(info.st_mode)) {
    return invalid_argument(fmt::format("'{}' is not a regular file", path));
  }
  return std::unique_ptr<MappedFile>(new MappedFile(path, std::move(file), identity_of(info)));
}

std::span<const std::byte> MappedFile::bytes() const {
  const MutexLock lock(mutex_);
  if (whole_ == nullptr && size() > 0) {
    auto mapping = GuardedMapping::map(fd_.get(), 0, size(), path_);
    if (mapping.ok()) whole_ = std::move(mapping).value();
  }
  return whole_ != nullptr ? whole_->bytes() : std::span<const std::byte>();
}

void MappedFile::unmap() const {
  const MutexLock lock(mutex_);
  whole_.reset();
}

Status MappedFile::check_range(uint64_t offset, uint64_t size) const {
  if (range_fits(offset, size, identity_.size)) return ok_status();
  return Status(StatusCode::out_of_range,
                fmt::format("'{}' has {} bytes, {} at {} were asked for", path_,
                            human_count(identity_.size), size, offset));
}

Result<std::unique_ptr<GuardedMapping>> MappedFile::map(uint64_t offset, uint64_t size) const {
  TRY(check_range(offset, size));
  return GuardedMapping::map(fd_.get(), offset, size, path_);
}

Status MappedFile::check_unchanged() const {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0)
    return from_errno(errno, fmt::format("cannot check '{}'", path_));
  if (identity_of(info) != identity_) {
    return failed_precondition(
        fmt::format("model changed on disk: '{}' had {} bytes when it was opened and has {} now",
                    path_, human_count(size()), human_count(static_cast<uint64_t>(info.st_size))),
        "put the file back, or restart with the new one");
  }
  return ok_status();
}

Status MappedFile::read(uint64_t offset, std::span<std::byte> out) const {
  TRY(check_range(offset, out.size()));
  while (!out.empty()) {
    const ssize_t got = pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno(errno, fmt::format("cannot read '{}'", path_));
    if (got == 0) {  // a shorter file than the one opened
      TRY(check_unchanged());
      return data_loss(fmt::format("'{}' ended at {} while it was read", path_, offset));
    }
    offset += static_cast<uint64_t>(got);
    out = out.subspan(static_cast<size_t>(got));
  }
  return check_unchanged();
}

}  // namespace strata
