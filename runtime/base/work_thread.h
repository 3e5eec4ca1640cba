// WorkThread: one thread that does jobs in the order in which they come.
//
// For work that must not be done where it arises (on a network library's threads, under a lock),
// such as tokenizing a prompt or reading a file. The queue is bounded, so that who brings too much
// is told so.
//
// Threads: any. Jobs must not wait for the WorkThread itself.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>

#include "runtime/base/mutex.h"

namespace strata {

class WorkThread {
 public:
  using Job = std::function<void()>;

  // `jobs_max`: jobs that may wait.
  explicit WorkThread(size_t jobs_max);
  // As stop().
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;
  WorkThread& operator=(const WorkThread&) = delete;

  // The first job starts the thread. False, and the job is dropped, if the queue is full, the
  // thread was stopped, or the system gives none (the next job tries again).
  bool post(Job job);
  // The same for jobs that free something: never refused for want of room.
  void post_always(Job job);
  // Drops what waits, lets the job that runs finish, ends the thread. Any number of times.
  void stop();

 private:
  bool add(Job job, size_t room);
  void run() noexcept;

  const size_t jobs_max_;
  Mutex mutex_;
  CondVar wake_;
  std::deque<Job> jobs_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // started by add(), with the lock; ended by stop()
};

}  // namespace strata
