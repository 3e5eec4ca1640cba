// CacheDisk: what storing tensors asks of the disk: room before a transfer begins, nothing left
// behind, and one warning.
//
// A part that nobody holds locked belongs to no process any more: it was left by one that died, or
// by a transfer that broke off and may go on. Such parts are kept for a day, unless a tensor needs
// their room.
//
// Threads: any, and several processes with one folder.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "runtime/base/status.h"

namespace strata::worker {

// What a tensor's file is called while it comes in; flock() tells whether somebody writes it.
inline constexpr const char* kPartSuffix = ".part";

class CacheDisk {
 public:
  explicit CacheDisk(std::string folder) : folder_(std::move(folder)) {}
  const std::string& folder() const { return folder_; }

  // Reserves `more` bytes behind the first `size` of the locked part `path`; other parts go if that
  // helps. Errors: RESOURCE_EXHAUSTED with need and have.
  Status take_room(int fd, const std::string& path, uint64_t size, uint64_t more);
  // Why a tensor is not stored; told once in the object's life.
  void warn(const Status& why);
  // Removes parts that nobody writes and that are older than `age`, but not `except`. Looks at
  // 10,000 files at most. Returns how many it removed.
  int remove_parts(std::chrono::seconds age, const std::string& except = {}) const;
  // The same for those older than a day, at the first call.
  void remove_stale_parts();

 private:
  const std::string folder_;
  std::atomic<bool> is_warned_ = false;
  std::atomic<bool> is_cleaned_ = false;
};

// RESOURCE_EXHAUSTED: what is said wherever the disk is full.
Status no_room_for(const std::string& path, const std::string& why);

}  // namespace strata::worker
