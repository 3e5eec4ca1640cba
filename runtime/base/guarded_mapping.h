// GuardedMapping: a read-only mapping of a part of a file that outlives the file's truncation.
//
// A page of a mapping that the file no longer has cannot be read: the kernel sends SIGBUS, and by
// default that ends the process. Weights may stay in a mapped file for days, and people overwrite
// files. So a handler puts zeros in place of what is gone and takes a note; whoever computed with
// the mapping asks has_faulted() afterwards and throws the result away.
//
// The handler must find out whether an address belongs to such a mapping, and a signal handler can
// neither lock nor allocate: the mappings stand in a table of fixed size, the one piece of global
// state here. Faults elsewhere end the process as they would without it.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace strata {

// How many mappings can be there at a time: a stage has about one for each part of a split file.
inline constexpr size_t kGuardedMappingsMax = 4096;

// Installs the handler for this process. Called by main(), before other threads start; without it
// mappings work, but a truncation ends the process. Errors: those of sigaction.
Status install_mapping_guard();

class GuardedMapping {
 public:
  // [offset, offset + size) of the file and what shares its pages. `path` stands in errors.
  // Errors: RESOURCE_EXHAUSTED if there are too many; those of mmap. Requires: size > 0, and the
  // range lay within the file a moment ago.
  static Result<std::unique_ptr<GuardedMapping>> map(int fd, uint64_t offset, uint64_t size,
                                                     const std::string& path);
  ~GuardedMapping();
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;

  std::span<const std::byte> bytes() const { return {begin_ + lead_, static_cast<size_t>(size_)}; }
  // Address space taken: whole pages.
  uint64_t mapped_bytes() const { return mapped_; }
  // Whether something was read that is gone; zeros were read in its place.
  bool has_faulted() const;

 private:
  GuardedMapping(std::byte* begin, uint64_t mapped, uint64_t lead, uint64_t size, size_t slot)
      : begin_(begin), mapped_(mapped), lead_(lead), size_(size), slot_(slot) {}

  std::byte* begin_;  // of the first page
  uint64_t mapped_;
  uint64_t lead_;  // bytes of the first page before the range
  uint64_t size_;
  size_t slot_;  // in the handler's table
};

}  // namespace strata
