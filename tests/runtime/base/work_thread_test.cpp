// Jobs run in order on one thread, a full queue refuses, and a stopped thread forgets what waits.
#include "runtime/base/work_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

namespace strata {
namespace {

TEST(WorkThread, RunsJobsInOrder) {
  std::vector<int> seen;
  WorkThread thread(100);
  std::promise<void> done;
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(thread.post([&seen, i] { seen.push_back(i); }));
  }
  EXPECT_TRUE(thread.post([&done] { done.set_value(); }));
  done.get_future().wait();
  ASSERT_EQ(seen.size(), 50U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(WorkThread, RefusesMoreThanItHolds) {
  WorkThread thread(2);
  std::promise<void> begun;
  std::promise<void> go;
  thread.post([&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  int ran = 0;
  EXPECT_TRUE(thread.post([&ran] { ++ran; }));
  EXPECT_TRUE(thread.post([&ran] { ++ran; }));
  EXPECT_FALSE(thread.post([&ran] { ++ran; }));
  std::promise<void> last;
  thread.post_always([&last] { last.set_value(); });
  go.set_value();
  last.get_future().wait();
  EXPECT_EQ(ran, 2);
}

TEST(WorkThread, DropsWhatWaitsWhenItStops) {
  int ran = 0;
  std::promise<void> begun;
  std::promise<void> go;
  WorkThread thread(size_t{1} << 24);  // full only once it is stopped
  thread.post([&] {
    begun.set_value();
    go.get_future().wait();
    ++ran;
  });
  begun.get_future().wait();
  thread.post([&ran] { ran += 100; });
  std::thread stopper([&thread] { thread.stop(); });
  while (thread.post([] {})) std::this_thread::yield();
  go.set_value();
  stopper.join();
  EXPECT_EQ(ran, 1);
  EXPECT_FALSE(thread.post([] {}));
}

}  // namespace
}  // namespace strata
