// FileDescriptor: owns what open(), socket() and their like return. Threads: as an int.
#pragma once

#include <unistd.h>

#include <utility>

namespace strata {

class FileDescriptor {
 public:
  FileDescriptor() = default;
  // Negative: none, such as what open() returns when it failed.
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  // The caller closes it.
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace strata
