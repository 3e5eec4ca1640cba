// Starting threads where the system may refuse: its limits on a user's threads and on a process's
// address space are ordinary outcomes, not bugs.
//
// Threads: any.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "runtime/base/status.h"

namespace strata {

// RESOURCE_EXHAUSTED: what is said wherever the system gives no thread.
Status no_more_threads();

// Puts a thread that runs `body` into `thread`, which must not have one. `body` must not throw. It
// runs where the process may, also if its maker is pinned (thread_pool.h).
// Errors: RESOURCE_EXHAUSTED if the system gives none.
Status start_thread(std::thread& thread, std::function<void()> body);

// Threads that run `body` beside their maker, as many of `count` as the system gives, none of them
// needed: the maker runs it too. They are joined when the object ends. `body` must not throw.
class HelperThreads {
 public:
  HelperThreads(int count, const std::function<void()>& body);
  ~HelperThreads();
  HelperThreads(const HelperThreads&) = delete;
  HelperThreads& operator=(const HelperThreads&) = delete;

  size_t count() const { return threads_.size(); }

 private:
  std::vector<std::thread> threads_;
};

// Whether this process can have `threads` more at once, by trying: for libraries that wait for ever
// when they get none. Takes a moment.
// Errors: RESOURCE_EXHAUSTED with the number that it can have.
Status check_thread_room(int threads);

}  // namespace strata
