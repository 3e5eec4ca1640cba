// Threads start, and a process that may have no more of them gets a sentence. The limit is set in a
// process of its own.
#include "runtime/base/thread_start.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

namespace strata {
namespace {

TEST(ThreadStart, RunsTheBody) {
  std::atomic<int> ran = 0;
  std::thread thread;
  ASSERT_TRUE(start_thread(thread, [&] { ran = 7; }).ok());
  thread.join();
  EXPECT_EQ(ran, 7);
}

TEST(ThreadStart, ThereIsRoomForAFew) { EXPECT_TRUE(check_thread_room(4).ok()); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which need address space
TEST(ThreadStart, TooLittleAddressSpaceIsASentence) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 1U << 30;
    ::setrlimit(RLIMIT_AS, &limit);
    const Status status = check_thread_room(64);
    const bool right = status.code() == StatusCode::resource_exhausted &&
                       status.message().find("the 64 more") != std::string::npos;
    ::_exit(right ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
}
#endif

}  // namespace
}  // namespace strata
