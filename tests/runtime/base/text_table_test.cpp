// Tables as people see them, and signals as events.
#include "cli/terminal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <future>

#include "cli/signals.h"

namespace strata::cli {
namespace {

TEST(Terminal, AlignsColumnsByWhatIsShown) {
  EXPECT_EQ(table_text({{"name", "size"}, {"ä-ö", "12"}, {"longer", "3"}}, {1}),
            "name    size\n"
            "ä-ö       12\n"
            "longer     3\n");
  EXPECT_EQ(table_text({}), "");
  EXPECT_EQ(table_text({{"a", ""}}), "a\n");
}

TEST(Signals, CountsAndWakesThoseThatWait) {
  Signals signals;
  EXPECT_EQ(signals.count(), 0);
  EXPECT_FALSE(signals.wait_for(std::chrono::milliseconds(1)));
  std::promise<int> seen;
  signals.on_signal([&seen](int count) { seen.set_value(count); });
  ::kill(::getpid(), SIGINT);
  EXPECT_EQ(seen.get_future().get(), 1);
  signals.wait();
  EXPECT_TRUE(signals.wait_for(std::chrono::milliseconds(1)));
  signals.on_signal({});
  ::kill(::getpid(), SIGTERM);
  while (signals.count() < 2) ::usleep(1000);
}

}  // namespace
}  // namespace strata::cli
