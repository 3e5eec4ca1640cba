// SIGINT and SIGTERM as events that a command waits for, in place of handlers that run anywhere;
// the same behaviour for every command:
//
//   - the first: the command ends what it does in an orderly way; stop_token() is told, a handler
//     called.
//   - the second: it stops now, without waiting for anything; an error is printed, and the process
//     ends with exit code 1 (the kernel ends its worker processes with it).
//   - the third: the process ends at once, whatever the second is still busy with.
//
// A signal within kOneKeystroke of the one before counts as the same: a terminal and a launcher may
// both pass one Ctrl-C on. Construct it before any thread is started: it blocks the signals for all
// of them, and takes them in a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>

#include "runtime/base/clock.h"

namespace strata::cli {

inline constexpr auto kOneKeystroke = std::chrono::milliseconds(100);

// Threads: all members any; handlers run on a thread of this class, one at a time.
class Signals {
 public:
  struct Event {
    int number = 0;  // SIGINT or SIGTERM
    int count = 0;   // how many have come since the beginning, or since forget()
  };
  using Handler = std::function<void(const Event&)>;

  // `is_json`: how a second signal's error is printed.
  explicit Signals(bool is_json = false);
  // Stops the threads, and gives the signals their default effect back.
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // While it lives, its handler is the one that is called. Its end waits for a call that runs, so
  // that what the handler refers to may go after it, and brings the handler before it back.
  class [[nodiscard]] Handling {
   public:
    Handling(Signals& signals, Handler handler);
    ~Handling();
    Handling(const Handling&) = delete;
    Handling& operator=(const Handling&) = delete;

   private:
    Signals& signals_;
    Handler before_;
  };
  // The handler is called at each signal, and before this returns if one has come already; it must
  // not block for long, nor call handle().
  Handling handle(Handler handler);
  // Told to stop by the first signal.
  std::stop_token stop_token() const;
  // Signals that have come.
  int count() const;
  // What has come is dealt with: the next signal is a first one again. stop_token() stays as it is.
  void forget();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Blocks until `stop` is told to stop; false if it is not in time.
bool wait_for_stop(const std::stop_token& stop, Duration timeout = Duration::max());

}  // namespace strata::cli
