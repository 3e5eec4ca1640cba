#include "worker/tensor_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "runtime/base/check.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"

namespace strata::worker {
namespace {

// How often a worker looks whether another one has finished the tensor that both want.
constexpr std::chrono::milliseconds kLockRetry{50};
constexpr size_t kReadBytes = size_t{1} << 20;

bool has_size(const std::string& path, uint64_t size) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) &&
         static_cast<uint64_t>(info.st_size) == size;
}

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path,
                 uint64_t still_needed) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && (errno == ENOSPC || errno == EDQUOT)) {
      return no_room_for(
          path, fmt::format("the disk is full: {} more are needed", human_bytes(still_needed)));
    }
    if (written < 0) return from_errno(errno, fmt::format("cannot write {}", path));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ok_status();
}

// Hashes what an earlier transfer left. Its size.
Result<uint64_t> hash_part(int fd, Sha256& sha, const std::string& path) {
  std::vector<std::byte> buffer(kReadBytes);
  uint64_t size = 0;
  for (;;) {
    const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno(errno, fmt::format("cannot read {}", path));
    if (got == 0) return size;
    sha.update(std::span(buffer).first(static_cast<size_t>(got)));
    size += static_cast<uint64_t>(got);
  }
}

// Waits for the lock that another worker may hold while it receives the same tensor.
Status lock_file(int fd, const std::string& path, const std::stop_token& stop) {
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return from_errno(errno, fmt::format("cannot lock {}", path));
    }
    if (stop.stop_requested()) return cancelled("the load was cancelled");
    std::this_thread::sleep_for(kLockRetry);
  }
  return ok_status();
}

}  // namespace

TensorCache::TensorCache(CacheDisk& disk, remote::ModelName model,
                         const std::vector<remote::ManifestTensor>& manifest,
                         remote::WeightsClient& client, std::atomic<uint64_t>& received_bytes)
    : disk_(disk), model_(std::move(model)), client_(client), received_bytes_(received_bytes) {
  for (const remote::ManifestTensor& tensor : manifest) manifest_.emplace(tensor.name, tensor);
}

TensorCache::~TensorCache() = default;

Status TensorCache::read(const TensorInfo& tensor, uint64_t offset, std::span<std::byte> out,
                         std::stop_token stop) {
  const std::shared_ptr<Reading> reading = TRY(reading_of(tensor, stop));
  if (stop.stop_requested()) return cancelled("the load was cancelled");
  if (reading->file != nullptr) return reading->file->read(offset, out);
  STRATA_CHECK(range_fits(offset, out.size(), reading->bytes.size()), tensor.name);
  std::copy_n(reading->bytes.begin() + static_cast<ptrdiff_t>(offset), out.size(), out.begin());
  return ok_status();
}

void TensorCache::release(const TensorInfo& tensor) {
  const MutexLock lock(mutex_);
  open_.erase(tensor.name);
}

Result<std::shared_ptr<TensorCache::Reading>> TensorCache::reading_of(const TensorInfo& tensor,
                                                                      std::stop_token stop) {
  {
    const MutexLock lock(mutex_);
    const auto found = open_.find(tensor.name);
    if (found != open_.end()) return found->second;
  }
  const auto entry = manifest_.find(tensor.name);
  if (entry == manifest_.end() || entry->second.size_bytes != tensor.size_bytes) {
    return data_loss(
        fmt::format("the coordinator's manifest and header disagree on tensor {}", tensor.name));
  }
  std::shared_ptr<Reading> reading = TRY(open(entry->second, stop));
  const MutexLock lock(mutex_);
  open_[tensor.name] = reading;
  return reading;
}

Result<std::shared_ptr<TensorCache::Reading>> TensorCache::open(
    const remote::ManifestTensor& tensor, const std::stop_token& stop) {
  const std::string path = disk_.folder() + "/" + tensor.digest;
  auto reading = std::make_shared<Reading>();
  reading->file = TRY(open_stored(tensor, path, stop));
  if (reading->file != nullptr) return reading;
  if (can_store_ && TRY(fetch(tensor, path, stop))) {
    reading->file = TRY(MappedFile::open(path));
    return reading;
  }
  reading->bytes = TRY(receive_into_memory(tensor, stop));
  return reading;
}

// The file with those bytes; null if there is none, or none any more.
Result<std::unique_ptr<MappedFile>> TensorCache::open_stored(const remote::ManifestTensor& tensor,
                                                             const std::string& path,
                                                             const std::stop_token& stop) const {
  if (!has_size(path, tensor.size_bytes)) return std::unique_ptr<MappedFile>();
  Result<std::unique_ptr<MappedFile>> file = MappedFile::open(path);
  Sha256 sha;
  std::vector<std::byte> buffer(kReadBytes);
  Status status = file.status();
  for (uint64_t at = 0; status.ok() && at < tensor.size_bytes; at += buffer.size()) {
    if (stop.stop_requested()) return cancelled("the load was cancelled");
    buffer.resize(static_cast<size_t>(std::min<uint64_t>(kReadBytes, tensor.size_bytes - at)));
    status = file.value()->read(at, buffer);
    sha.update(buffer);
  }
  if (status.ok() && sha.finish() == tensor.digest) return file;
  log::warn("{} is damaged ({}): it is removed and received again", path,
            status.ok() ? "other bytes than its digest says" : status.message());
  std::remove(path.c_str());
  return std::unique_ptr<MappedFile>();
}

bool TensorCache::cannot_store(const Status& why) {
  can_store_ = false;
  disk_.warn(why);
  return false;
}

bool TensorCache::drop_part(const std::string& part, const Status& why) {
  std::remove(part.c_str());
  disk_.warn(why);
  return false;
}

Status TensorCache::wrong_digest(const remote::ManifestTensor& tensor, uint64_t received) {
  received_bytes_ -= received;
  return data_loss(
      fmt::format("tensor {} does not have its digest after the transfer", tensor.name),
      "the next load gets it again");
}

Result<std::vector<std::byte>> TensorCache::receive_into_memory(
    const remote::ManifestTensor& tensor, const std::stop_token& stop) {
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(tensor.size_bytes));
  Sha256 sha;
  const auto take = [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    sha.update(piece);
    received_bytes_ += piece.size();
    return ok_status();
  };
  TRY(client_.get_tensor(model_, tensor, 0, take, stop));
  if (sha.finish() == tensor.digest) return bytes;
  return wrong_digest(tensor, bytes.size());
}

Result<bool> TensorCache::fetch(const remote::ManifestTensor& tensor, const std::string& path,
                                std::stop_token stop) {
  std::error_code error;
  std::filesystem::create_directories(disk_.folder(), error);
  if (error) {
    return cannot_store(
        unavailable(fmt::format("cannot make folder {}: {}", disk_.folder(), error.message()),
                    "name another folder with --cache"));
  }
  const std::string part = path + kPartSuffix;
  for (;;) {
    const FileDescriptor file(
        ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (file.get() < 0) {
      return cannot_store(from_errno(errno, fmt::format("cannot open {}", part))
                              .with_hint("name another folder with --cache"));
    }
    if (Status status = lock_file(file.get(), part, stop); !status.ok()) {
      if (stop.stop_requested()) return status;
      return cannot_store(status);
    }
    // Another worker may have finished it while this one waited.
    if (has_size(path, tensor.size_bytes)) {
      struct stat mine {};
      struct stat named {};
      if (::fstat(file.get(), &mine) == 0 && ::stat(part.c_str(), &named) == 0 &&
          mine.st_ino == named.st_ino && mine.st_size == 0) {
        std::remove(part.c_str());
      }
      return true;
    }
    // The locked file must still be the one of that name.
    struct stat mine {};
    struct stat named {};
    if (::fstat(file.get(), &mine) != 0 || ::stat(part.c_str(), &named) != 0 ||
        mine.st_ino != named.st_ino) {
      continue;
    }
    if (!TRY(receive(tensor, file.get(), part, stop))) return false;
    if (::rename(part.c_str(), path.c_str()) != 0) {
      return cannot_store(from_errno(errno, fmt::format("cannot rename {}", part)));
    }
    return true;
  }
}

Result<bool> TensorCache::receive(const remote::ManifestTensor& tensor, int fd,
                                  const std::string& part, std::stop_token stop) {
  Sha256 sha;
  uint64_t size = TRY(hash_part(fd, sha, part));
  if (size > tensor.size_bytes) {
    if (::ftruncate(fd, 0) != 0) return from_errno(errno, part);
    sha = Sha256();
    size = 0;
  }
  const Status room = disk_.take_room(fd, part, size, tensor.size_bytes - size);
  if (!room.ok()) return drop_part(part, room);
  if (::lseek(fd, static_cast<off_t>(size), SEEK_SET) < 0) return from_errno(errno, part);
  uint64_t received = 0;
  Status written;
  const auto take = [&](std::span<const std::byte> bytes) -> Status {
    written = write_all(fd, bytes, part, tensor.size_bytes - size);
    TRY(written);
    sha.update(bytes);
    size += bytes.size();
    received += bytes.size();
    received_bytes_ += bytes.size();
    return ok_status();
  };
  if (size < tensor.size_bytes) {
    const Status sent = client_.get_tensor(model_, tensor, size, take, stop);
    if (!written.ok()) {
      received_bytes_ -= received;
      return drop_part(part, written);
    }
    TRY(sent);
  }
  if (sha.finish() == tensor.digest) return true;
  std::remove(part.c_str());
  return wrong_digest(tensor, received);
}

}  // namespace strata::worker
