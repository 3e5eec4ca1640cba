// SIGINT and SIGTERM as events that a command waits for, in place of handlers that run anywhere.
//
// Construct it before any thread is started: it blocks the signals for all of them, and takes them
// in a thread of its own.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/clock.h"

namespace strata::cli {

// Threads: wait() and count() any; on_signal() runs on the signal thread.
class Signals {
 public:
  Signals();
  // Stops the thread, and gives the signals their default effect back.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Called at each signal from now on, with how many have come; must not block for long.
  void on_signal(std::function<void(int count)> handler);
  // Signals that have come.
  int count() const;
  // Blocks until a signal has come.
  void wait();
  // False if none came in time.
  bool wait_for(Duration timeout);
  // Like kill(getpid(), SIGTERM), for those that wait.
  void raise();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::cli
