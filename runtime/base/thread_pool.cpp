#include "runtime/base/thread_pool.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/base/cgroup.h"
#include "runtime/base/check.h"
#include "runtime/base/cpu_list.h"
#include "runtime/base/log.h"
#include "runtime/base/thread_start.h"

namespace strata {
namespace {

// A helper is handed work again within microseconds while a model runs; parking and waking costs
// some 5 to 50 us each.
constexpr int64_t kHelperSpinNs = 40'000;
// A piece is meant to take less than this; a caller that waits longer lends its core.
constexpr int64_t kCallerSpinNs = 60'000;
// Waits longer than this and several pieces mean that a helper has lost its core: schedulers' time
// slices are milliseconds. Without a piece of its own to compare with, the caller is more patient.
constexpr int64_t kStallNs = 700'000;
constexpr int64_t kStallPieces = 4;
constexpr int64_t kStallUnknownNs = 20'000'000;
constexpr int64_t kAloneFactor = 10;
constexpr int kRelaxesPerClock = 32;

constexpr int kCountShift = 20;
constexpr int kJobShift = 40;
constexpr uint64_t kPieceMask = (uint64_t{1} << kCountShift) - 1;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Tells the core that this is a waiting loop.
void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

bool pin_this_thread(int cpu) { return allow_cpus(0, std::span(&cpu, 1)); }

}  // namespace

ThreadPool::ThreadPool(int threads, std::span<const int> cpus) : cpus_(cpus.begin(), cpus.end()) {
  STRATA_CHECK(threads >= 1, "a pool counts its caller");
  helpers_.reserve(static_cast<size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) {
    std::thread helper;
    // At the system's limit on threads it goes on with those there are.
    if (!start_thread(helper, [this, i] { helper_main(i); }).ok()) break;
    helpers_.push_back(std::move(helper));
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  published_.fetch_add(1);
  published_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
  unpin_caller();
}

void ThreadPool::pin_caller() {
  unpin_caller();
  caller_ = ::pthread_self();
  pinned_from_ = allowed_cpus(0);
  if (!pinned_from_.empty() && pin_this_thread(cpus_.front())) {
    pinned_id_ = ::gettid();
  } else {
    log::debug("threads stay free: the system does not pin one to processor {}", cpus_.front());
  }
}

// The caller may have ended long ago.
void ThreadPool::unpin_caller() {
  if (pinned_id_ == 0) return;
  if (::tgkill(::getpid(), pinned_id_, 0) == 0) allow_cpus(pinned_id_, pinned_from_);
  pinned_id_ = 0;
}

void ThreadPool::run_job(int64_t count, JobFunction function, const void* context) {
  STRATA_CHECK(count >= 0 && count <= kMaxPieces, "too many pieces for one job");
  if (!cpus_.empty() && (!caller_ || ::pthread_equal(*caller_, ::pthread_self()) == 0)) {
    pin_caller();
  }
  bool alone = count <= 1 || helpers_.empty();
  if (!alone && alone_until_ns_ != 0) {
    if (now_ns() < alone_until_ns_) {
      alone = true;
    } else {
      alone_until_ns_ = 0;
    }
  }
  if (alone) {
    for (int64_t piece = 0; piece < count; ++piece) function(context, piece, 0);
    return;
  }

  function_ = function;
  context_ = context;
  ++job_number_;
  job_.store((job_number_ << kJobShift) | (static_cast<uint64_t>(count) << kCountShift),
             std::memory_order_release);
  // Sequentially consistent against a helper that counts itself as parked and then looks at
  // published_: either it sees this number, or it is seen here.
  published_.fetch_add(1, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) > 0) published_.notify_all();

  const int64_t start_ns = now_ns();
  const int64_t mine = work_on_job(0);
  if (mine == count) return;
  const int64_t stall_ns =
      mine == 0 ? kStallUnknownNs : kStallNs + kStallPieces * (now_ns() - start_ns) / mine;
  wait_for_others(count - mine, stall_ns);
}

int64_t ThreadPool::work_on_job(int thread) {
  int64_t pieces = 0;
  uint64_t job = job_.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t next = job & kPieceMask;
    const uint64_t count = (job >> kCountShift) & kPieceMask;
    if (next >= count) return pieces;
    if (!job_.compare_exchange_weak(job, job + 1, std::memory_order_acq_rel,
                                    std::memory_order_acquire)) {
      continue;
    }
    // From the claim to the report the caller waits, so the job's function is there.
    function_(context_, static_cast<int64_t>(next), thread);
    ++pieces;
    if (thread != 0) done_by_helpers_.fetch_add(1, std::memory_order_release);
    job = job_.load(std::memory_order_acquire);
  }
}

void ThreadPool::wait_for_others(int64_t pieces, int64_t stall_ns) {
  left_to_helpers_ += pieces;
  const auto done = [&] {
    return done_by_helpers_.load(std::memory_order_acquire) == left_to_helpers_;
  };
  for (int i = 0; i < 2 * kRelaxesPerClock; ++i) {
    if (done()) return;
    relax();
  }
  const int64_t start_ns = now_ns();
  int64_t waited_ns = 0;
  while (!done()) {
    if (waited_ns < kCallerSpinNs) {
      for (int i = 0; i < kRelaxesPerClock && !done(); ++i) relax();
    } else {
      std::this_thread::yield();
    }
    waited_ns = now_ns() - start_ns;
  }
  if (waited_ns > stall_ns) alone_until_ns_ = start_ns + waited_ns * (1 + kAloneFactor);
}

void ThreadPool::helper_main(int thread) {
  const auto number = static_cast<size_t>(thread);
  const bool is_pinned = number < cpus_.size() && pin_this_thread(cpus_[number]);
  if (!cpus_.empty() && !is_pinned) run_where_process_may();  // its maker may be pinned
  uint32_t seen = 0;
  while (wait_for_job(seen)) work_on_job(thread);
}

bool ThreadPool::wait_for_job(uint32_t& seen) {
  const int64_t start_ns = now_ns();
  do {
    for (int i = 0; i < kRelaxesPerClock; ++i) {
      const uint32_t published = published_.load(std::memory_order_acquire);
      if (published != seen) {
        seen = published;
        return !stop_.load(std::memory_order_relaxed);
      }
      relax();
    }
  } while (now_ns() - start_ns < kHelperSpinNs);

  parked_.fetch_add(1, std::memory_order_seq_cst);
  published_.wait(seen, std::memory_order_seq_cst);
  // The count is the helper's own: one that parked after this job was published sleeps on through
  // its notice, and would never be called again if the caller had set the count to 0.
  parked_.fetch_sub(1, std::memory_order_relaxed);
  seen = published_.load(std::memory_order_acquire);
  return !stop_.load(std::memory_order_relaxed);
}

int usable_core_count() {
  int cores = static_cast<int>(allowed_cpus(::getpid()).size());  // not of a pinned caller
  if (cores == 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  const double quota = read_cgroup_limits().cores.value_or(cores);
  if (quota < cores) cores = static_cast<int>(quota + 0.5);
  return std::max(cores, 1);
}

}  // namespace strata
