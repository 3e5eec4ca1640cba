#include "runtime/base/guarded_mapping.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "runtime/base/checked_math.h"

namespace strata {
namespace {

// A mapping as the handler sees it. `begin` 0: free; 1: about to be filled.
struct Slot {
  std::atomic<uintptr_t> begin = 0;
  std::atomic<uintptr_t> end = 0;
  std::atomic<bool> faulted = false;
};

static_assert(std::atomic<uintptr_t>::is_always_lock_free);

constinit std::array<Slot, kGuardedMappingsMax> slots;

uint64_t page_size() {
  static const auto size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return size;
}

// Only what a handler may do: atomics without locks, and mmap, which is a bare system call here.
void on_bus_error(int, siginfo_t* info, void*) {
  const int saved_errno = errno;
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Slot& slot : slots) {
    const uintptr_t begin = slot.begin.load(std::memory_order_acquire);
    const uintptr_t end = slot.end.load(std::memory_order_acquire);
    if (begin <= 1 || address < begin || address >= end) continue;
    slot.faulted.store(true, std::memory_order_release);
    // Everything behind it is gone as well after a truncation; one fault for all of it.
    const uintptr_t page = address & ~(uintptr_t{4096} - 1);
    void* zeros = mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) break;
    errno = saved_errno;
    return;
  }
  // Not ours: the instruction runs again and ends the process as the kernel wants it.
  signal(SIGBUS, SIG_DFL);
  errno = saved_errno;
}

// The number of a slot that is now taken, or kGuardedMappingsMax.
size_t take_slot() {
  for (size_t i = 0; i < slots.size(); ++i) {
    uintptr_t free = 0;
    if (slots[i].begin.compare_exchange_strong(free, 1)) return i;
  }
  return kGuardedMappingsMax;
}

}  // namespace

Status install_mapping_guard() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (sigaction(SIGBUS, &action, nullptr) != 0) {
    return from_errno(errno, "cannot install the handler for truncated files");
  }
  return ok_status();
}

Result<std::unique_ptr<GuardedMapping>> GuardedMapping::map(int fd, uint64_t offset, uint64_t size,
                                                            const std::string& path) {
  const uint64_t lead = offset % page_size();
  const uint64_t mapped = align_up(lead + size, page_size());
  const size_t slot = take_slot();
  if (slot == kGuardedMappingsMax) {
    return resource_exhausted(
        fmt::format("more than {} parts of files are mapped", kGuardedMappingsMax));
  }
  void* begin =
      mmap(nullptr, mapped, PROT_READ, MAP_PRIVATE, fd, static_cast<off_t>(offset - lead));
  if (begin == MAP_FAILED) {
    const int error = errno;
    slots[slot].begin = 0;
    return from_errno(error, fmt::format("cannot map '{}'", path));
  }
  const auto address = reinterpret_cast<uintptr_t>(begin);
  slots[slot].faulted.store(false);
  slots[slot].end.store(address + mapped, std::memory_order_release);
  slots[slot].begin.store(address, std::memory_order_release);
  return std::unique_ptr<GuardedMapping>(
      new GuardedMapping(static_cast<std::byte*>(begin), mapped, lead, size, slot));
}

GuardedMapping::~GuardedMapping() {
  // First out of the table: the address may belong to another mapping right after munmap.
  slots[slot_].end.store(0, std::memory_order_release);
  slots[slot_].begin.store(0, std::memory_order_release);
  munmap(begin_, mapped_);
}

bool GuardedMapping::has_faulted() const {
  return slots[slot_].faulted.load(std::memory_order_acquire);
}

}  // namespace strata
