#include "runtime/base/thread_start.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <latch>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/base/cpu_list.h"
#include "runtime/base/human.h"

namespace strata {
namespace {

constexpr const char* kHint = "raise its limits: ulimit -u, ulimit -v, the cgroup's pids.max";
// What the C library reserves for a thread: its stack and, once it allocates, an arena. The arenas
// come when they come, so that trying threads alone says nothing of the next one.
constexpr size_t kThreadSpaceBytes = size_t{8 + 64} << 20;

}  // namespace

Status no_more_threads() {
  return resource_exhausted("the system gives this process no more threads", kHint);
}

Status start_thread(std::thread& thread, std::function<void()> body) {
  // Asked here and not in the thread, which has its maker's mask: it then begins without a single
  // allocation, whenever that is.
  std::vector<int> cpus = cpus_of_process_if_pinned();
  try {
    thread = std::thread([body = std::move(body), cpus = std::move(cpus)]() noexcept {
      if (!cpus.empty()) allow_cpus(0, cpus);
      body();
    });
  } catch (const std::system_error&) {
    return no_more_threads();
  }
  return ok_status();
}

HelperThreads::HelperThreads(int count, const std::function<void()>& body) {
  for (int i = 0; i < count; ++i) {
    std::thread thread;
    if (!start_thread(thread, body).ok()) return;
    threads_.push_back(std::move(thread));
  }
}

HelperThreads::~HelperThreads() {
  for (std::thread& thread : threads_) thread.join();
}

Status check_thread_room(int threads) {
  const size_t wanted = static_cast<size_t>(threads);
  void* const room = ::mmap(nullptr, wanted * kThreadSpaceBytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    return resource_exhausted(
        fmt::format("this process has no address space for the {} more threads that it needs: {}",
                    wanted, human_bytes(wanted * kThreadSpaceBytes)),
        kHint);
  }
  ::munmap(room, wanted * kThreadSpaceBytes);
  std::latch all_tried(1);
  std::vector<std::thread> started(wanted);
  size_t count = 0;
  while (count < wanted && start_thread(started[count], [&] { all_tried.wait(); }).ok()) ++count;
  all_tried.count_down();
  for (size_t i = 0; i < count; ++i) started[i].join();
  if (count == wanted) return ok_status();
  return resource_exhausted(
      fmt::format("the system gives this process only {} of the {} more threads that it needs",
                  count, wanted),
      kHint);
}

}  // namespace strata
