// A mutex that clang's thread-safety analysis understands (-Wthread-safety in the clang build).
//
// Members protected by a mutex say so: `int count_ STRATA_GUARDED_BY(mutex_);`, functions that need
// it held: `void f() STRATA_REQUIRES(mutex_);`.
// https://clang.llvm.org/docs/ThreadSafetyAnalysis.html
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define STRATA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define STRATA_THREAD_ATTRIBUTE(x)
#endif
#define STRATA_GUARDED_BY(m) STRATA_THREAD_ATTRIBUTE(guarded_by(m))
#define STRATA_REQUIRES(...) STRATA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))

namespace strata {

class STRATA_THREAD_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() STRATA_THREAD_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() STRATA_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class STRATA_THREAD_ATTRIBUTE(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) STRATA_THREAD_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() STRATA_THREAD_ATTRIBUTE(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits with the mutex held, as std::condition_variable; spurious wake-ups are possible, so wait in
// a loop that tests the condition.
class CondVar {
 public:
  void wait(Mutex& mutex) STRATA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False once `deadline` has passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline)
      STRATA_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = cv_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace strata
