// Stops one thread of a process that this one has started, while its other threads run on: the
// fault of a stage that hangs although its worker lives.
#pragma once

#include <sys/types.h>

#include <string>

namespace strata::test {

// By ptrace, which some containers forbid: ok() says whether it worked. Threads: those that made
// it.
class HungThread {
 public:
  // The first thread of `pid` with that name (15 characters at most).
  HungThread(pid_t pid, const std::string& name);
  // Lets it run on.
  ~HungThread();
  HungThread(const HungThread&) = delete;
  HungThread& operator=(const HungThread&) = delete;

  bool ok() const { return thread_ > 0; }

 private:
  pid_t thread_ = -1;
};

}  // namespace strata::test
