// The thread pool: every piece runs exactly once, whatever the number of threads and however late
// the helpers are. Jobs live on the stack, so a helper that touched a finished one would read freed
// memory: run these under tsan and asan too.
#include "runtime/base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "runtime/base/cpu_list.h"

namespace strata {
namespace {

using Seconds = std::chrono::duration<double>;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return Seconds(std::chrono::steady_clock::now() - start).count();
}

// Some work that the compiler cannot remove.
void spin(int rounds) {
  uint64_t x = 88172645463325252u;
  for (int i = 0; i < rounds; ++i) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    __asm__ volatile("" : "+r"(x));
  }
}

TEST(ThreadPool, RunsEveryPieceOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.thread_count(), threads);
    for (const int64_t count : {0, 1, 2, 7, 64, 1000}) {
      std::vector<int> runs(static_cast<size_t>(count), 0);
      pool.run(count, [&](int64_t piece, int thread) {
        ASSERT_GE(thread, 0);
        ASSERT_LT(thread, threads);
        ++runs[static_cast<size_t>(piece)];
      });
      for (const int n : runs) ASSERT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, ResultsOfPiecesAreVisibleToTheNextJob) {
  ThreadPool pool(4);
  std::vector<int64_t> values(257, 1);
  for (int round = 0; round < 500; ++round) {
    pool.run(static_cast<int64_t>(values.size()), [&](int64_t piece, int) {
      int64_t& value = values[static_cast<size_t>(piece)];
      value = value * 3 % 1'000'003 + piece;
    });
  }
  for (size_t i = 0; i < values.size(); ++i) {
    int64_t expected = 1;
    for (int round = 0; round < 500; ++round) {
      expected = expected * 3 % 1'000'003 + static_cast<int64_t>(i);
    }
    ASSERT_EQ(values[i], expected);
  }
}

TEST(ThreadPool, RandomJobsWithPausesBetween) {
  std::mt19937 random(3);
  ThreadPool pool(3);
  for (int job = 0; job < 3000; ++job) {
    const int64_t count = static_cast<int64_t>(random() % 20);
    const int rounds = static_cast<int>(random() % 300);
    std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
    pool.run(count, [&](int64_t piece, int) {
      spin(rounds);
      runs[static_cast<size_t>(piece)].fetch_add(1, std::memory_order_relaxed);
    });
    for (const auto& n : runs) ASSERT_EQ(n.load(), 1);
    // Now and then long enough for the helpers to park.
    if (random() % 200 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// Helpers that have parked, or are about to, hear of the next job: none sleeps on for good. Pauses
// are as long as helpers spin, give or take.
TEST(ThreadPool, AllHelpersComeBackAfterPauses) {
  constexpr int kThreads = 3;
  std::mt19937 random(5);
  ThreadPool pool(kThreads);
  for (int job = 0; job < 2000; ++job) {
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::microseconds(20 + random() % 60);
    while (std::chrono::steady_clock::now() < until) {
    }
    pool.run(kThreads, [](int64_t, int) {});
  }
  // Each piece waits for a while until all have begun, which takes every thread. A busy machine may
  // need several tries: the pool leaves out helpers that lost their core.
  bool all_came = false;
  for (int round = 0; round < 50 && !all_came; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::atomic<int> begun{0};
    const auto start = std::chrono::steady_clock::now();
    pool.run(kThreads, [&](int64_t, int) {
      ++begun;
      while (begun < kThreads && seconds_since(start) < 0.2) std::this_thread::yield();
    });
    all_came = seconds_since(start) < 0.2;
  }
  EXPECT_TRUE(all_came);
}

TEST(ThreadPool, ManyPoolsComeAndGo) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(1 + i % 5);
    std::atomic<int64_t> sum{0};
    if (i % 2 == 0) pool.run(10, [&](int64_t piece, int) { sum += piece; });
    EXPECT_EQ(sum.load(), i % 2 == 0 ? 45 : 0);
  }
}

// Waiting for a long piece is no stall: the helper must go on taking part. Pieces sleep, so that a
// busy machine does not matter.
TEST(ThreadPool, LongPiecesDoNotSendTheHelpersAway) {
  ThreadPool pool(2);
  int jobs_with_helper = 0;
  for (int job = 0; job < 12; ++job) {
    std::atomic<int> by_helper{0};
    pool.run(2, [&](int64_t piece, int thread) {
      if (thread != 0) ++by_helper;
      std::this_thread::sleep_for(std::chrono::milliseconds(piece == 0 ? 4 : 7));
    });
    if (by_helper > 0) ++jobs_with_helper;
  }
  EXPECT_GE(jobs_with_helper, 6);
}

// Eight threads on one core: the pool must not take much longer than the work alone.
TEST(ThreadPool, IsBoundedWhenThreadsOutnumberCores) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) {
      CPU_SET(cpu, &one);
      break;
    }
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // helpers inherit it
  const auto time_with = [](int threads) {
    ThreadPool pool(threads);
    const auto start = std::chrono::steady_clock::now();
    for (int job = 0; job < 100; ++job) pool.run(16, [](int64_t, int) { spin(20000); });
    return seconds_since(start);
  };
  // The best of three: other processes share this machine.
  double alone = 1e9;
  double crowded = 1e9;
  for (int i = 0; i < 3; ++i) {
    alone = std::min(alone, time_with(1));
    crowded = std::min(crowded, time_with(8));
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_LT(crowded, 3 * alone + 0.1) << "alone " << alone << " s";
}

// A processor for each of `threads`, in turn if there are fewer.
std::vector<int> pins(int threads) {
  const std::vector<int> all = allowed_cpus(::getpid());
  std::vector<int> cpus;
  for (size_t i = 0; i < static_cast<size_t>(threads); ++i) cpus.push_back(all[i % all.size()]);
  return cpus;
}

// Where each thread of the pool may run: pieces wait until every thread has taken one.
std::vector<std::vector<int>> masks_of(ThreadPool& pool) {
  const int threads = pool.thread_count();
  std::vector<std::vector<int>> masks(static_cast<size_t>(threads));
  std::atomic<int> arrived{0};
  pool.run(threads, [&](int64_t, int thread) {
    masks[static_cast<size_t>(thread)] = allowed_cpus(0);
    ++arrived;
    const auto start = std::chrono::steady_clock::now();
    while (arrived < threads && seconds_since(start) < 20) std::this_thread::yield();
  });
  return masks;
}

TEST(ThreadPool, PinsEachThreadAndLetsTheCallerGo) {
  const std::vector<int> before = allowed_cpus(0);
  const std::vector<int> cpus = pins(3);
  {
    ThreadPool pool(3, cpus);
    EXPECT_EQ(allowed_cpus(0), before) << "who makes a pool need not run its jobs";
    const auto masks = masks_of(pool);
    for (size_t i = 0; i < masks.size(); ++i) EXPECT_EQ(masks[i], std::vector<int>{cpus[i]}) << i;
    EXPECT_EQ(allowed_cpus(0), std::vector<int>{cpus[0]}) << "it stays between jobs";
  }
  EXPECT_EQ(allowed_cpus(0), before);
}

TEST(ThreadPool, AThreadBeyondTheListRunsAnywhere) {
  const std::vector<int> all = allowed_cpus(::getpid());
  std::thread([&] {
    ThreadPool first(1, pins(1));
    first.run(1, [](int64_t, int) {});  // pins this thread, which then makes another pool
    ThreadPool pool(2, pins(1));
    const auto masks = masks_of(pool);
    EXPECT_EQ(masks[0], pins(1));
    EXPECT_EQ(masks[1], all);
  }).join();
}

TEST(ThreadPool, FollowsItsCallerFromThreadToThread) {
  const std::vector<int> before = allowed_cpus(0);
  auto pool = std::make_unique<ThreadPool>(2, pins(2));
  const auto one_job = [&] { pool->run(4, [](int64_t, int) {}); };
  one_job();
  std::thread([&] {
    one_job();
    EXPECT_EQ(allowed_cpus(0), std::vector<int>{pins(1)[0]});
    EXPECT_EQ(allowed_cpus(::getpid()), before) << "the caller before is free again";
  }).join();
  pool.reset();  // its last caller has ended
  EXPECT_EQ(allowed_cpus(0), before);
}

TEST(ThreadPool, WorksWhereThePinIsRefused) {
  const std::vector<int> before = allowed_cpus(0);
  ThreadPool pool(2, std::vector<int>{60000, 60001});
  std::atomic<int64_t> sum{0};
  pool.run(10, [&](int64_t piece, int) { sum += piece; });
  EXPECT_EQ(sum, 45);
  EXPECT_EQ(allowed_cpus(0), before);
}

TEST(ThreadPool, KnowsTheCoresItMayUse) {
  EXPECT_GE(usable_core_count(), 1);
  EXPECT_LE(usable_core_count(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace strata
