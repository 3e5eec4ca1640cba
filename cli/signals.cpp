#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>

#include <thread>

#include "runtime/base/mutex.h"

namespace strata::cli {
namespace {

sigset_t watched() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  // Wakes the signal thread when it is to end.
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

struct Signals::Impl {
  void take(int signal);
  void run() noexcept;

  Mutex mutex;
  CondVar came;
  int count STRATA_GUARDED_BY(mutex) = 0;
  bool stopping STRATA_GUARDED_BY(mutex) = false;
  std::function<void(int)> handler STRATA_GUARDED_BY(mutex);
  std::thread thread;
};

void Signals::Impl::take(int) {
  std::function<void(int)> call;
  int number = 0;
  {
    const MutexLock lock(mutex);
    number = ++count;
    call = handler;
    came.notify_all();
  }
  if (call) call(number);
}

void Signals::Impl::run() noexcept {
  const sigset_t set = watched();
  while (true) {
    int signal = 0;
    if (::sigwait(&set, &signal) != 0) return;
    {
      const MutexLock lock(mutex);
      if (stopping) return;
    }
    if (signal != SIGUSR1) take(signal);
  }
}

Signals::Signals() : impl_(std::make_unique<Impl>()) {
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Signals::~Signals() {
  {
    const MutexLock lock(impl_->mutex);
    impl_->stopping = true;
  }
  ::pthread_kill(impl_->thread.native_handle(), SIGUSR1);
  impl_->thread.join();
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Signals::on_signal(std::function<void(int count)> handler) {
  const MutexLock lock(impl_->mutex);
  impl_->handler = std::move(handler);
}

int Signals::count() const {
  const MutexLock lock(impl_->mutex);
  return impl_->count;
}

void Signals::wait() {
  const MutexLock lock(impl_->mutex);
  while (impl_->count == 0) impl_->came.wait(impl_->mutex);
}

bool Signals::wait_for(Duration timeout) {
  const TimePoint deadline = SystemClock().now() + timeout;
  const MutexLock lock(impl_->mutex);
  while (impl_->count == 0) {
    if (!impl_->came.wait_until(impl_->mutex, deadline)) return impl_->count > 0;
  }
  return true;
}

void Signals::raise() { impl_->take(SIGTERM); }

}  // namespace strata::cli
