// A persistent pool of threads for short parallel jobs cut into numbered pieces.
//
// run() publishes a job in one atomic word {job, count, next}; the caller and whoever of the
// helpers is awake claim pieces by compare-and-swap on that word. A claim can succeed only for the
// job that is published at that moment, so a helper that comes late (it was descheduled, or is only
// waking up) is left out and can never touch a finished job. The caller waits for pieces that
// others have claimed, never for helpers as such: with every core taken away but one, run() is a
// plain loop.
//
//   caller:  publish -> claim, run, claim, run ... -> wait until the others' claims are done
//   helper:  spin for a new job (some 30 us) -> claim, run ... -> spin ... -> park on a futex
//
// A helper that loses its core in the middle of a piece makes the caller wait for the operating
// system's time slice. After such a stall (a wait of several times what the caller's own pieces
// took) the pool runs jobs on the caller alone for ten times as long as the stall was, which bounds
// the loss to a tenth.
//
// A pool may be given a processor for each thread: helpers pin themselves when they start, whoever
// calls run() is pinned by its first job and let go at the pool's end, or when another thread
// calls. Whether that is wise is the owner's affair (runtime/topology/exclusive_cpus.h).
//
// Threads: run() from one thread at a time. Helpers own nothing between jobs.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

namespace strata {

class ThreadPool {
 public:
  // Most pieces of one job; more are a bug.
  static constexpr int64_t kMaxPieces = (int64_t{1} << 20) - 1;

  // `threads` counts the caller: 1 makes no helper. Requires: threads >= 1. If the system gives
  // fewer threads, the pool has fewer. Thread i runs on processor cpus[i] only; those beyond the
  // list run anywhere.
  explicit ThreadPool(int threads, std::span<const int> cpus = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int thread_count() const { return static_cast<int>(helpers_.size()) + 1; }

  // Calls function(piece, thread) for each piece in [0, count), each once, in any order, on any
  // thread; 0 <= thread < thread_count() numbers the thread, the caller being 0. Returns when all
  // are done; what they wrote is visible to the caller, and what the caller wrote before to them.
  // The function must not throw, and must not call run() of this pool.
  template <typename Function>
  void run(int64_t count, const Function& function) {
    run_job(
        count,
        [](const void* context, int64_t piece, int thread) {
          (*static_cast<const Function*>(context))(piece, thread);
        },
        &function);
  }

 private:
  using JobFunction = void (*)(const void* context, int64_t piece, int thread);

  void pin_caller();
  void unpin_caller();
  void run_job(int64_t count, JobFunction function, const void* context);
  // Claims and runs pieces until none is left; returns how many.
  int64_t work_on_job(int thread);
  // `stall_ns`: a longer wait means that a helper has lost its core.
  void wait_for_others(int64_t pieces, int64_t stall_ns);
  void helper_main(int thread);
  // Spins, then parks, until a job newer than `seen` is published; false at the end.
  bool wait_for_job(uint32_t& seen);

  // All that a helper needs to take part, in one cache line: it comes over once.
  // Written by the caller before it publishes, read by those who have claimed a piece.
  alignas(64) JobFunction function_ = nullptr;
  const void* context_ = nullptr;
  // Bits 0..19 next piece, 20..39 count, 40..63 job number.
  std::atomic<uint64_t> job_{0};
  // Counts published jobs: what parked helpers wait on. 32 bits, which is what a futex takes.
  std::atomic<uint32_t> published_{0};
  // Helpers that wait, are about to, or are about to go on.
  std::atomic<int32_t> parked_{0};
  std::atomic<bool> stop_{false};

  // Pieces that helpers have done since the pool began.
  alignas(64) std::atomic<int64_t> done_by_helpers_{0};

  // Caller only: pieces of all jobs that were left to helpers; until when (steady clock, ns) jobs
  // run without helpers, 0 for not at all.
  alignas(64) int64_t left_to_helpers_ = 0;
  int64_t alone_until_ns_ = 0;
  uint64_t job_number_ = 0;

  const std::vector<int> cpus_;
  // Of a pool with processors: who called last, its id in the kernel if it is pinned (else 0), and
  // where it could run before.
  std::optional<pthread_t> caller_;
  pid_t pinned_id_ = 0;
  std::vector<int> pinned_from_;

  std::vector<std::thread> helpers_;
};

// Cores that this process may use: its affinity mask, less what a cgroup quota takes away; at
// least 1.
int usable_core_count();

}  // namespace strata
