// Goal: a signal means the same to every command, and none is lost.
// Method: signals to this process, and to children that hang on purpose.
#include "cli/signals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <thread>

namespace strata::cli {
namespace {

using std::chrono::milliseconds;

TEST(Signals, TheFirstIsToldToTheTokenAndToTheHandler) {
  Signals signals;
  EXPECT_EQ(signals.count(), 0);
  EXPECT_FALSE(wait_for_stop(signals.stop_token(), milliseconds(1)));
  std::promise<Signals::Event> seen;
  const Signals::Handling handling =
      signals.handle([&seen](const Signals::Event& event) { seen.set_value(event); });
  ::kill(::getpid(), SIGTERM);
  const Signals::Event event = seen.get_future().get();
  EXPECT_EQ(event.number, SIGTERM);
  EXPECT_EQ(event.count, 1);
  EXPECT_TRUE(wait_for_stop(signals.stop_token()));
}

TEST(Signals, OneThatCameBeforeTheHandlerIsToldToIt) {
  Signals signals;
  ::kill(::getpid(), SIGINT);
  EXPECT_TRUE(wait_for_stop(signals.stop_token()));
  int count = 0;
  const Signals::Handling handling =
      signals.handle([&count](const Signals::Event& event) { count = event.count; });
  EXPECT_EQ(count, 1);
}

TEST(Signals, TheEndOfAHandlerWaitsForItsCall) {
  Signals signals;
  std::promise<void> begun;
  std::atomic<bool> ended = false;
  {
    const Signals::Handling handling = signals.handle([&](const Signals::Event&) {
      begun.set_value();
      std::this_thread::sleep_for(milliseconds(50));
      ended = true;
    });
    ::kill(::getpid(), SIGINT);
    begun.get_future().wait();
  }
  EXPECT_TRUE(ended);
}

TEST(Signals, TheHandlerBeforeComesBack) {
  Signals signals;
  std::atomic<int> outer = 0;
  std::atomic<int> inner = 0;
  const Signals::Handling handling = signals.handle([&](const Signals::Event&) { ++outer; });
  {
    const Signals::Handling nested = signals.handle([&](const Signals::Event&) { ++inner; });
    ::kill(::getpid(), SIGINT);
    while (inner == 0) std::this_thread::yield();
  }
  signals.forget();
  EXPECT_EQ(signals.count(), 0);
  ::kill(::getpid(), SIGINT);
  while (outer == 0) std::this_thread::yield();
  EXPECT_EQ(inner, 1);
}

TEST(Signals, OneKeystrokeThatComesTwiceIsOneSignal) {
  Signals signals;
  std::atomic<int> calls = 0;
  const Signals::Handling handling = signals.handle([&](const Signals::Event&) { ++calls; });
  ::kill(::getpid(), SIGINT);
  while (calls == 0) std::this_thread::yield();
  ::kill(::getpid(), SIGTERM);
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(signals.count(), 1);
}

// A program whose handler hangs: the second signal ends it all the same, with an error.
[[noreturn]] void hang_and_get_two_signals(bool is_json) {
  Signals signals(is_json);
  std::promise<void> begun;
  const Signals::Handling handling = signals.handle([&](const Signals::Event&) {
    begun.set_value();
    std::this_thread::sleep_for(std::chrono::hours(1));
  });
  ::kill(::getpid(), SIGINT);
  begun.get_future().wait();
  std::this_thread::sleep_for(kOneKeystroke + milliseconds(20));
  ::kill(::getpid(), SIGINT);
  std::this_thread::sleep_for(std::chrono::hours(1));
  std::_Exit(77);
}

TEST(SignalsDeathTest, TheSecondStopsAtOnceWhateverTheHandlerDoes) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(hang_and_get_two_signals(false), testing::ExitedWithCode(1),
              "^error: interrupted twice: stopped without winding up\n$");
  EXPECT_EXIT(hang_and_get_two_signals(true), testing::ExitedWithCode(1),
              "^\\{\"error\":\\{\"code\":\"CANCELLED\",\"message\":\"interrupted twice.*\\}\n$");
}

}  // namespace
}  // namespace strata::cli
