#include "worker/cache_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "runtime/base/checked_math.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"

namespace strata::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kPartKept{24};
constexpr int kEntriesMax = 10'000;

// What an ordinary user may still take of the disk.
uint64_t free_bytes(int fd) {
  struct statvfs disk {};
  if (::fstatvfs(fd, &disk) != 0) return UINT64_MAX;  // then writing will tell
  return checked_mul<uint64_t>(disk.f_bavail, disk.f_frsize).value_or(UINT64_MAX);
}

// True if nobody wrote it for that long and nobody holds it.
bool is_left_over(const std::string& path, std::chrono::seconds age) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat info {};
  if (!file.is_open() || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  if (std::time(nullptr) - info.st_mtime < age.count()) return false;
  return ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

Status no_room_for(const std::string& path, const std::string& why) {
  return resource_exhausted(fmt::format("cannot store {}: {}", path, why),
                            "free space there, or name another folder with --cache");
}

Status CacheDisk::take_room(int fd, const std::string& path, uint64_t size, uint64_t more) {
  if (free_bytes(fd) < more) static_cast<void>(remove_parts(std::chrono::seconds(0), path));
  const uint64_t have = free_bytes(fd);
  if (have >= more) {
    // Several loads may ask at once: what is reserved is taken. A file system that cannot reserve
    // says so when it is full.
    if (more == 0 || ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(size),
                                 static_cast<off_t>(more)) == 0) {
      return ok_status();
    }
    if (errno != ENOSPC && errno != EDQUOT) return ok_status();
  }
  return no_room_for(
      path, fmt::format("the disk is full: {} more are needed, {} are free", human_bytes(more),
                        human_bytes(have < more ? have : free_bytes(fd))));
}

void CacheDisk::warn(const Status& why) {
  if (is_warned_.exchange(true)) return;
  log::warn("{}; what is not stored comes over the network at each start", why.to_string());
}

int CacheDisk::remove_parts(std::chrono::seconds age, const std::string& except) const {
  std::error_code error;
  fs::directory_iterator entry(folder_, error);
  int removed = 0;
  for (int seen = 0; !error && entry != fs::directory_iterator() && seen < kEntriesMax; ++seen) {
    const std::string path = entry->path().string();
    if (path.ends_with(kPartSuffix) && path != except && is_left_over(path, age) &&
        std::remove(path.c_str()) == 0) {
      ++removed;
    }
    entry.increment(error);
  }
  if (removed > 0) log::info("removed {} unfinished files from {}", removed, folder_);
  return removed;
}

void CacheDisk::remove_stale_parts() {
  if (!is_cleaned_.exchange(true)) static_cast<void>(remove_parts(kPartKept));
}

}  // namespace strata::worker
