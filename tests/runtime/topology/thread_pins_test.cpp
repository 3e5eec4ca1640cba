// ThreadPins: who is pinned where, for described machines and claims.
#include "runtime/topology/thread_pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const CpuClaim kOwn = {true, "nobody else comes here"};
const CpuClaim kShared = {false, "a browser may run there"};

Result<ThreadPins> decide(const PinRequest& request, const CpuClaim& claim) {
  const Topology topology = Topology::described("core:4 pu:2").value();
  return decide_pins(request, std::vector<int>{2, 3, 4, 5}, claim, topology);
}

TEST(ThreadPins, AutoPinsOnProcessorsOfItsOwn) {
  const ThreadPins pins = decide({.threads = 2}, kOwn).value();
  EXPECT_THAT(pins.cpus, ElementsAre(2, 4, 3, 5));
  EXPECT_EQ(pins.text, "threads are pinned to processors 2,4: nobody else comes here");
}

TEST(ThreadPins, AutoLeavesThreadsFreeElsewhere) {
  const auto why_not = [](const PinRequest& request, const CpuClaim& claim) {
    const ThreadPins pins = decide(request, claim).value();
    EXPECT_THAT(pins.cpus, IsEmpty());
    return pins.text;
  };
  EXPECT_EQ(why_not({.threads = 2}, kShared), "threads are not pinned: a browser may run there");
  EXPECT_EQ(why_not({.threads = 5}, kOwn), "threads are not pinned: 5 threads on 4 processors");
  EXPECT_EQ(why_not({.threads = 2, .pools = 3}, kOwn),
            "threads are not pinned: 3 pools of threads share the processors");
  EXPECT_EQ(why_not({.mode = PinMode::off, .threads = 2}, kOwn),
            "threads are not pinned: --pin off");
}

TEST(ThreadPins, OnPinsWhoeverElseIsThere) {
  const ThreadPins pins = decide({.mode = PinMode::on, .threads = 4, .pools = 2}, kShared).value();
  EXPECT_THAT(pins.cpus, ElementsAre(2, 4, 3, 5));
  EXPECT_EQ(pins.text, "threads are pinned to processors 2,4,3,5: --pin on");
  const Status status = decide({.mode = PinMode::on, .threads = 5}, kOwn).status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.message(), "--pin on: 5 threads, and 4 processors to pin them to");
  EXPECT_THAT(status.to_string(), HasSubstr("--threads 4"));
}

TEST(ThreadPins, OfThisProcessIsSaidWithItsReason) {
  const ThreadPins automatic = choose_pins({.threads = 1}).value();
  EXPECT_THAT(automatic.text, HasSubstr(automatic.cpus.empty() ? "not pinned: " : "are pinned to"));
  const ThreadPins on = choose_pins({.mode = PinMode::on, .threads = 1}).value();
  EXPECT_FALSE(on.cpus.empty());
  EXPECT_THAT(on.text, HasSubstr("--pin on"));
  EXPECT_EQ(choose_pins({.mode = PinMode::on, .threads = 100000}).status().code(),
            StatusCode::invalid_argument);
}

TEST(ThreadPins, KnowsItsModes) {
  EXPECT_EQ(parse_pin_mode("auto").value(), PinMode::automatic);
  EXPECT_EQ(parse_pin_mode("on").value(), PinMode::on);
  EXPECT_EQ(parse_pin_mode("off").value(), PinMode::off);
  const Status status = parse_pin_mode("yes").status();
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_EQ(status.message(), "'yes' is none of auto, on and off");
}

}  // namespace
}  // namespace strata
