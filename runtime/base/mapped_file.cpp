#include "runtime/base/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
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

// The pages wholly inside [offset, offset + size), clamped to the file.
struct PageRange {
  uint64_t begin;
  uint64_t size;
};

PageRange inner_pages(uint64_t offset, uint64_t size, uint64_t file_size) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (offset >= file_size) return {0, 0};
  const uint64_t end = size > file_size - offset ? file_size : offset + size;
  const uint64_t first = (offset + page - 1) / page * page;
  const uint64_t last = end / page * page;
  return first < last ? PageRange{first, last - first} : PageRange{0, 0};
}

}  // namespace

MappedFile::MappedFile(std::string path, int fd, const std::byte* data,
                       const FileIdentity& identity)
    : path_(std::move(path)), fd_(fd), data_(data), identity_(identity) {}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size());
  close(fd_);
}

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return from_errno(errno, fmt::format("cannot open '{}'", path));
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    const int error = errno;
    close(fd);
    return from_errno(error, fmt::format("cannot read the size of '{}'", path));
  }
  if (!S_ISREG(info.st_mode)) {
    close(fd);
    return invalid_argument(fmt::format("'{}' is not a regular file", path));
  }
  const FileIdentity identity = identity_of(info);
  const uint64_t size = identity.size;
  void* data = nullptr;
  if (size > 0) {
    data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const int error = errno;
      close(fd);
      return from_errno(error, fmt::format("cannot map '{}'", path));
    }
  }
  return std::unique_ptr<MappedFile>(
      new MappedFile(path, fd, static_cast<const std::byte*>(data), identity));
}

void MappedFile::will_need(uint64_t offset, uint64_t size) const {
  const PageRange pages = inner_pages(offset, size, this->size());
  if (pages.size > 0) {
    madvise(const_cast<std::byte*>(data_) + pages.begin, pages.size, MADV_WILLNEED);
  }
}

void MappedFile::drop(uint64_t offset, uint64_t size) const {
  const PageRange pages = inner_pages(offset, size, this->size());
  if (pages.size > 0) {
    madvise(const_cast<std::byte*>(data_) + pages.begin, pages.size, MADV_DONTNEED);
  }
}

Status MappedFile::check_unchanged() const {
  struct stat info {};
  if (fstat(fd_, &info) != 0) return from_errno(errno, fmt::format("cannot check '{}'", path_));
  if (identity_of(info) != identity_) {
    return failed_precondition(
        fmt::format("model changed on disk: '{}' had {} bytes when it was opened and has {} now",
                    path_, human_count(size()), human_count(static_cast<uint64_t>(info.st_size))),
        "put the file back, or restart with the new one");
  }
  return ok_status();
}

Status MappedFile::read(uint64_t offset, std::span<std::byte> out) const {
  if (!range_fits(offset, out.size(), size())) {
    return Status(StatusCode::out_of_range,
                  fmt::format("'{}' has {} bytes, {} at {} were asked for", path_,
                              human_count(size()), out.size(), offset));
  }
  while (!out.empty()) {
    const ssize_t got = pread(fd_, out.data(), out.size(), static_cast<off_t>(offset));
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
