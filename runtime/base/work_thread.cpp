#include "runtime/base/work_thread.h"

#include <limits>
#include <utility>

#include "runtime/base/thread_start.h"

namespace strata {

WorkThread::WorkThread(size_t jobs_max) : jobs_max_(jobs_max) {}

WorkThread::~WorkThread() { stop(); }

bool WorkThread::post(Job job) { return add(std::move(job), jobs_max_); }

void WorkThread::post_always(Job job) {
  static_cast<void>(add(std::move(job), std::numeric_limits<size_t>::max()));
}

bool WorkThread::add(Job job, size_t room) {
  const MutexLock lock(mutex_);
  if (stopping_ || jobs_.size() >= room) return false;
  if (!thread_.joinable() && !start_thread(thread_, [this] { run(); }).ok()) return false;
  jobs_.push_back(std::move(job));
  wake_.notify_one();
  return true;
}

void WorkThread::stop() {
  std::deque<Job> dropped;  // destroyed without the lock
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped = std::exchange(jobs_, {});
    wake_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void WorkThread::run() noexcept {
  while (true) {
    Job job;
    {
      const MutexLock lock(mutex_);
      while (jobs_.empty() && !stopping_) wake_.wait(mutex_);
      if (stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace strata
