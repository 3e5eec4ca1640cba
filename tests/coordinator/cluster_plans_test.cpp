// When and with whom a cluster plans: whom failures name is left out, who comes back or comes late
// is used, and a plan that serves is given up for a better one only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/cluster_story.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

// The way to one worker is broken for its peers: plans do without it while the others suffice, ps
// says why, and the pipeline that stands is not given up for it before long.
TEST(ClusterPlans, AWorkerThatItsPeersCannotReachIsLeftOut) {
  Story story(options_for(2));
  story.obey = false;
  const MemberId bad = story.join("bad");
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  ASSERT_EQ(story.stage_nodes(), (std::vector<std::string>{"bad", "a"}));
  story.finish_commands();  // loads
  ASSERT_EQ(story.state.status(story.now).state, "loading");
  story.say(a, remote::PeerLost{.epoch = story.state.epoch(),
                                .peer = "bad",
                                .status = unavailable("cannot reach bad at 127.0.0.1:9")});
  EXPECT_EQ(story.stop_reason.message(), "a could not start: cannot reach bad at 127.0.0.1:9");
  EXPECT_THAT(story.stop_reason.hint(), HasSubstr("see the logs of a and bad"));
  story.obey = true;
  story.live(milliseconds(1000), {bad, a, b});
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
  EXPECT_EQ(story.stage_nodes(), (std::vector<std::string>{"a", "b"}));
  const remote::ClusterStatus status = story.state.status(story.now);
  EXPECT_EQ(status.nodes[0].state, "spare");
  EXPECT_THAT(status.nodes[0].detail, HasSubstr("left out for"));
  EXPECT_THAT(status.nodes[0].detail, HasSubstr("a does not get through to it"));
  const uint64_t epoch = story.state.epoch();
  story.live(std::chrono::seconds(40), {bad, a, b});
  EXPECT_EQ(story.state.epoch(), epoch);
  // Without the others it is better than nothing.
  story.lose(a);
  story.lose(b);
  story.live(std::chrono::seconds(3), {bad});
  EXPECT_EQ(story.stage_nodes(), std::vector<std::string>{"bad"});
}

TEST(ClusterPlans, WhoAccusesOneAfterTheOtherIsLeftOutInItsTurn) {
  Story story(options_for(3));
  std::vector<MemberId> ids = {story.join("liar"), story.join("a"), story.join("b")};
  story.join("c");
  for (int round = 0; round < 4; ++round) {
    const std::vector<std::string> nodes = story.stage_nodes();
    const auto liar = std::find(nodes.begin(), nodes.end(), "liar");
    if (liar == nodes.end()) break;
    const std::string next = liar + 1 == nodes.end() ? nodes.front() : *(liar + 1);
    for (int broken = 0; broken < 2; ++broken) {
      story.say(ids[0], remote::PeerLost{.epoch = story.state.epoch(),
                                         .peer = next,
                                         .status = unavailable("Socket closed")});
      story.live(std::chrono::seconds(2), {1, 2, 3, 4});
      ASSERT_EQ(story.state.phase(), ClusterPhase::ready);
    }
  }
  const std::vector<std::string> nodes = story.stage_nodes();
  EXPECT_EQ(std::count(nodes.begin(), nodes.end(), "liar"), 0);
}

// Nothing but the streams that a worker writes itself is its to speak of.
TEST(ClusterPlans, WhatASpareOrAStrangerToAStreamSaysIsNotBelieved) {
  ClusterOptions options = options_for(0);
  options.plan.split = parse_split("a:4,b:4,c:4", 12).value();
  Story story(options);
  const MemberId a = story.join("a");
  story.join("b");
  const MemberId c = story.join("c");
  const MemberId spare = story.join("spare");
  ASSERT_EQ(story.state.phase(), ClusterPhase::ready);
  const auto says = [&](MemberId id, const std::string& peer) {
    story.say(id, remote::PeerLost{
                      .epoch = story.state.epoch(), .peer = peer, .status = unavailable("reset")});
    return story.state.phase() != ClusterPhase::ready;
  };
  EXPECT_FALSE(says(spare, "a"));
  EXPECT_FALSE(says(a, "c")) << "a writes to b only";
  EXPECT_FALSE(says(a, "a"));
  EXPECT_FALSE(says(c, "b")) << "b writes to c, and says so itself";
  EXPECT_TRUE(says(c, "a")) << "the tail writes to the head";
}

TEST(ClusterPlans, IsReadyOnceAStepHasGoneRound) {
  Story story(options_for(2));
  story.prove = false;
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  const MemberId c = story.join("c");
  ASSERT_THAT(story.trace.back(), HasSubstr("pipeline epoch 1"));
  EXPECT_EQ(story.state.status(story.now).state, "loading");
  EXPECT_THAT(story.state.obstacle().message(), HasSubstr("a first step goes round"));
  story.proof(story.state.epoch() + 1);
  EXPECT_NE(story.state.phase(), ClusterPhase::ready);
  // The head has passed the step on, and the tail has never seen it.
  for (int i = 0; i < 60 && story.stop_reason.ok(); ++i) {
    remote::Heartbeat beat;
    beat.epoch = story.state.epoch();
    beat.step = 1;
    story.say(a, beat);
    story.beat(c);
    beat.step = 0;
    story.say(b, beat);
    story.pass(milliseconds(500));
  }
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("a first step did not come round"));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("a has done step 1, and b is at step 0"));
  story.prove = true;
  story.live(std::chrono::seconds(2), {a, b, c});
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterPlans, AWorkerThatNeverLoadsEndsTheLoadInSecondsAndIsLeftOut) {
  Story story(options_for(2));
  story.obey = false;
  const MemberId silent = story.join("silent");
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  uint64_t received_bytes = 0;
  const auto beat = [&](MemberId id, uint64_t epoch, uint64_t done_bytes) {
    remote::Heartbeat heartbeat;
    heartbeat.epoch = epoch;
    if (epoch > 0) heartbeat.load = remote::LoadProgress{done_bytes, 100 * kMiB, 0};
    heartbeat.progress = received_bytes;
    story.say(id, heartbeat);
  };
  // The other one's progress does not cover for it.
  for (uint64_t i = 0; i < 12 && story.stop_reason.ok(); ++i) {
    beat(silent, 0, 0);
    beat(a, story.state.epoch(), i);
    beat(b, 0, 0);
    story.pass(milliseconds(500));
  }
  EXPECT_EQ(story.stop_reason.message(), "silent did not load its layers in time");
  story.live(milliseconds(1000), {silent, a, b});
  EXPECT_EQ(story.stage_nodes(), (std::vector<std::string>{"a", "b"}));
  story.stop_reason = {};
  // A slow load may take long.
  for (uint64_t i = 1; i < 1200; ++i) {
    beat(silent, 0, 0);
    beat(a, story.state.epoch(), i);
    beat(b, story.state.epoch(), i);
    story.pass(milliseconds(500));
  }
  EXPECT_TRUE(story.stop_reason.ok()) << story.stop_reason.to_string();
  // So may one large tensor over a slow network.
  for (received_bytes = 1; received_bytes < 1200; ++received_bytes) {
    beat(silent, 0, 0);
    beat(a, story.state.epoch(), 1200);
    beat(b, story.state.epoch(), 1200);
    story.pass(milliseconds(500));
  }
  EXPECT_TRUE(story.stop_reason.ok()) << story.stop_reason.to_string();
  for (int i = 0; i < 130; ++i) {
    beat(silent, 0, 0);
    beat(a, story.state.epoch(), 1200);
    beat(b, story.state.epoch(), 1200);
    story.pass(milliseconds(500));
  }
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("a, b did not load its layers"));
}

// Its neighbour notices first, a moment before the worker's own connection ends: the worker still
// has two seconds to come back, gets its layers again, and nobody is blamed for it.
TEST(ClusterPlans, ALossHasItsGraceWhicheverNoticeComesFirst) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  MemberId b = story.join("b");
  for (int round = 0; round < 6; ++round) {
    ASSERT_EQ(story.stage_nodes(), (std::vector<std::string>{"a", "b"})) << round;
    story.say(
        a, remote::PeerLost{
               .epoch = story.state.epoch(), .peer = "b", .status = unavailable("Socket closed")});
    story.lose(b);
    const auto begun = story.trace.size();
    story.live(milliseconds(1500), {a});
    EXPECT_EQ(story.trace.size(), begun) << "no plan within the grace";
    b = story.join("b");
  }
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterPlans, ALateWorkerOfTheNumberAskedForIsUsedOnceNobodyIsServed) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  story.lose(b);
  story.live(std::chrono::seconds(3), {a});
  ASSERT_EQ(story.stage_nodes(), std::vector<std::string>{"a"});
  story.serve(true);
  const MemberId again = story.join("b");
  for (int i = 0; i < 20; ++i) {
    story.serve(true);
    story.live(milliseconds(500), {a, again});
  }
  EXPECT_EQ(story.stage_nodes(), std::vector<std::string>{"a"});
  EXPECT_TRUE(story.noted("b is a spare: it gets layers once nobody has been served for 2.00 s"));
  story.serve(false);
  story.live(std::chrono::seconds(4), {a, again});
  EXPECT_EQ(story.stage_nodes().size(), 2U);
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterPlans, APlanThatIsBetterByAFifthIsTakenAndALesserOneIsNot) {
  ClusterOptions options = options_for(0);
  Story story(options);
  story.reads_per_s = 1'000'000'000;
  const MemberId slow = story.join("slow");
  ASSERT_EQ(story.state.phase(), ClusterPhase::ready);
  const uint64_t epoch = story.state.epoch();
  story.reads_per_s = 10'000'000;
  const MemberId snail = story.join("snail");
  story.live(std::chrono::seconds(5), {slow, snail});
  EXPECT_EQ(story.state.epoch(), epoch);
  EXPECT_TRUE(story.noted("snail is a spare: "));
  const std::string why = story.state.status(story.now).nodes[1].detail;
  EXPECT_TRUE(story.noted("snail is a spare: " + why)) << why;
  EXPECT_THAT(story.replan(), HasSubstr("the plan in use is the best for the 2 workers"));
  story.reads_per_s = 10'000'000'000;
  const MemberId quick = story.join("quick");
  story.live(std::chrono::seconds(5), {slow, snail, quick});
  EXPECT_EQ(story.state.epoch(), epoch + 1);
  EXPECT_THAT(story.stage_nodes(), ::testing::Contains("quick"));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("the model is placed anew"));
}

TEST(ClusterPlans, APersonMayPlaceTheModelAnewAtOnce) {
  Story story(options_for(0));
  story.reads_per_s = 1'000'000'000;
  story.join("slow");
  story.serve(true);
  story.reads_per_s = 10'000'000'000;
  story.join("quick");
  ASSERT_EQ(story.stage_nodes(), std::vector<std::string>{"slow"});
  EXPECT_THAT(story.replan(), HasSubstr("epoch 2 is being loaded"));
  EXPECT_THAT(story.stage_nodes(), ::testing::Contains("quick"));
}

TEST(ClusterPlans, ARestartedCoordinatorGoesOnWithThoseThatRanBefore) {
  ClusterOptions options = options_for(3);
  options.last_nodes = {"a", "b"};
  Story story(options);
  story.join("b");
  EXPECT_EQ(story.state.phase(), ClusterPhase::waiting);
  story.join("a");
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready) << "all that ran are there";
  EXPECT_EQ(story.stage_nodes().size(), 2U);
  // One of the two is gone as well: those that come within the grace.
  Story alone(options);
  const MemberId b = alone.join("b");
  alone.live(milliseconds(1500), {b});
  EXPECT_EQ(alone.state.phase(), ClusterPhase::waiting);
  alone.live(milliseconds(1000), {b});
  EXPECT_EQ(alone.state.phase(), ClusterPhase::ready);
  // One that never ran waits for all.
  options.last_nodes.clear();
  Story fresh(options);
  const MemberId first = fresh.join("a");
  fresh.live(std::chrono::seconds(60), {first});
  EXPECT_EQ(fresh.state.phase(), ClusterPhase::waiting);
}

TEST(ClusterPlans, WithoutANumberTheFirstPlanWaitsAMomentForMore) {
  ClusterOptions options = options_for(0);
  options.settle = milliseconds(1500);
  options.plan.use_all_nodes = true;
  Story story(options);
  std::vector<MemberId> ids = {story.join("w0")};
  EXPECT_THAT(story.state.obstacle().message(), HasSubstr("waiting a moment for more workers"));
  story.live(milliseconds(1000), ids);
  ids.push_back(story.join("w1"));
  story.live(milliseconds(1000), ids);
  EXPECT_EQ(story.state.phase(), ClusterPhase::waiting);
  story.live(milliseconds(1000), ids);
  EXPECT_EQ(story.stage_nodes(), (std::vector<std::string>{"w0", "w1"}));
  // Not for ever, though one joins after the other.
  Story crowd(options);
  ids.clear();
  for (int i = 0; i < 12; ++i) {
    ids.push_back(crowd.join(fmt::format("w{}", i)));
    crowd.live(milliseconds(500), ids);
  }
  EXPECT_EQ(crowd.state.phase(), ClusterPhase::ready);
  EXPECT_GE(crowd.stage_nodes().size(), 9U);
}

}  // namespace
}  // namespace strata::coordinator
