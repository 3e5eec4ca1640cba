#include "cli/signals.h"

#include <pthread.h>
#include <signal.h>

#include <cstdlib>
#include <thread>
#include <utility>

#include "cli/command.h"
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

// Two threads, so that a handler that hangs cannot keep the next signal from ending the process.
struct Signals::Impl {
  // Ends the threads, also if the system gave only the first.
  ~Impl();

  void watch() noexcept;
  void call_handlers() noexcept;
  void take(int number);
  [[noreturn]] void stop_now() const;

  const SystemClock clock{};
  bool is_json = false;

  Mutex mutex;
  CondVar came;
  Event event STRATA_GUARDED_BY(mutex);
  bool is_handled STRATA_GUARDED_BY(mutex) = true;
  TimePoint last STRATA_GUARDED_BY(mutex);
  bool stopping STRATA_GUARDED_BY(mutex) = false;

  // Held during calls. Taken before `mutex` where both are.
  Mutex call_mutex;
  Handler handler STRATA_GUARDED_BY(call_mutex);

  std::stop_source stop;
  std::thread watcher;
  std::thread caller;
};

Signals::Impl::~Impl() {
  {
    const MutexLock lock(mutex);
    stopping = true;
    came.notify_all();
  }
  if (watcher.joinable()) {
    ::pthread_kill(watcher.native_handle(), SIGUSR1);
    watcher.join();
  }
  if (caller.joinable()) caller.join();
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void Signals::Impl::stop_now() const {
  // A third signal must find its default effect, in case standard error blocks.
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  ::signal(SIGINT, SIG_DFL);
  ::signal(SIGTERM, SIG_DFL);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
  report_error(cancelled("interrupted twice: stopped without winding up"), is_json);
  std::_Exit(exit_error);
}

void Signals::Impl::take(int number) {
  bool is_second = false;
  {
    const MutexLock lock(mutex);
    const TimePoint now = clock.now();
    if (event.count > 0 && now - last < kOneKeystroke) return;
    last = now;
    event = {.number = number, .count = event.count + 1};
    is_handled = false;
    is_second = event.count >= 2;
    came.notify_all();
  }
  if (is_second) stop_now();
}

void Signals::Impl::watch() noexcept {
  const sigset_t set = watched();
  while (true) {
    int number = 0;
    if (::sigwait(&set, &number) != 0) return;
    {
      const MutexLock lock(mutex);
      if (stopping) return;
    }
    if (number != SIGUSR1) take(number);
  }
}

void Signals::Impl::call_handlers() noexcept {
  while (true) {
    {
      const MutexLock lock(mutex);
      while (is_handled && !stopping) came.wait(mutex);
      if (stopping) return;
    }
    const MutexLock call_lock(call_mutex);
    Event now;
    {
      const MutexLock lock(mutex);
      if (is_handled) continue;  // handle() has called its handler for it
      is_handled = true;
      now = event;
    }
    stop.request_stop();
    if (handler) handler(now);
  }
}

Signals::Signals(bool is_json) : impl_(std::make_unique<Impl>()) {
  impl_->is_json = is_json;
  const sigset_t set = watched();
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  impl_->watcher = std::thread([impl = impl_.get()] { impl->watch(); });
  impl_->caller = std::thread([impl = impl_.get()] { impl->call_handlers(); });
}

Signals::~Signals() = default;

Signals::Handling::Handling(Signals& signals, Handler handler) : signals_(signals) {
  Impl& impl = *signals.impl_;
  const MutexLock call_lock(impl.call_mutex);
  before_ = std::exchange(impl.handler, std::move(handler));
  Event now;
  {
    const MutexLock lock(impl.mutex);
    now = impl.event;
    impl.is_handled = true;
  }
  if (now.count == 0) return;
  impl.stop.request_stop();
  if (impl.handler) impl.handler(now);
}

Signals::Handling::~Handling() {
  Impl& impl = *signals_.impl_;
  const MutexLock call_lock(impl.call_mutex);
  impl.handler = std::move(before_);
}

Signals::Handling Signals::handle(Handler handler) { return Handling(*this, std::move(handler)); }

int Signals::count() const {
  const MutexLock lock(impl_->mutex);
  return impl_->event.count;
}

void Signals::forget() {
  const MutexLock lock(impl_->mutex);
  impl_->event = {};
  impl_->is_handled = true;
}

std::stop_token Signals::stop_token() const { return impl_->stop.get_token(); }

bool wait_for_stop(const std::stop_token& stop, Duration timeout) {
  Mutex mutex;
  CondVar told;
  const std::stop_callback wake(stop, [&] {
    const MutexLock lock(mutex);
    told.notify_all();
  });
  const TimePoint now = SystemClock().now();
  const bool is_endless = timeout > TimePoint::max() - now;
  const TimePoint deadline = is_endless ? TimePoint::max() : now + timeout;
  const MutexLock lock(mutex);
  while (!stop.stop_requested()) {
    if (is_endless) {
      told.wait(mutex);
    } else if (!told.wait_until(mutex, deadline)) {
      return stop.stop_requested();
    }
  }
  return true;
}

}  // namespace strata::cli
