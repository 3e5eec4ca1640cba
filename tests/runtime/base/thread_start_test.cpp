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

TEST(ThreadStart, HelpersRunAndAreJoined) {
  std::atomic<int> ran = 0;
  {
    const HelperThreads helpers(3, [&] { ++ran; });
  }
  EXPECT_EQ(ran, 3);
}

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

// Where the system refuses threads, there are fewer helpers and no end of the process.
TEST(ThreadStart, FewerHelpersWhereTheSystemRefuses) {
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 1U << 30;  // of which a thread's stack takes 8 MiB
    ::setrlimit(RLIMIT_AS, &limit);
    std::atomic<bool> may_end = false;
    size_t count = 0;
    {
      const HelperThreads helpers(1000, [&] { may_end.wait(false); });
      count = helpers.count();
      may_end = true;
      may_end.notify_all();
    }
    ::_exit(count > 0 && count < 1000 ? 0 : 1);
  }
  int ended = 0;
  ASSERT_EQ(::waitpid(child, &ended, 0), child);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0) << ended;
}
#endif

}  // namespace
}  // namespace strata
