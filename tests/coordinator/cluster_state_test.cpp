// From joins to a running pipeline and back, as stories: what workers say and what time does, and
// the commands that come of it.
#include "coordinator/cluster_state.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/cluster_story.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

TEST(ClusterState, TellsTheStagesWhoseStreamsToTakeByAKeyOfTheEpoch) {
  Story story(options_for(2));
  story.join("a");
  story.join("b");
  ASSERT_EQ(story.loads.size(), 2U);
  const std::string key = story.loads[0].stream_key;
  EXPECT_EQ(key.size(), 32U);
  EXPECT_EQ(story.loads[1].stream_key, key);
  EXPECT_EQ(story.last_start.stream_key, key);
  EXPECT_EQ(story.loads[0].steps_from, "coordinator");
  EXPECT_EQ(story.loads[0].results_from, "b");
  EXPECT_EQ(story.loads[1].steps_from, "a");
  EXPECT_EQ(story.loads[1].results_from, "");
  story.fail_pipeline(1);
  story.pass(std::chrono::seconds(1));
  ASSERT_EQ(story.loads.size(), 4U);
  EXPECT_NE(story.loads[2].stream_key, key) << "each epoch has its own";
}

// Whoever has the token can join, and would end every epoch.
TEST(ClusterState, ASpareIsNotBelievedThatAStageIsLost) {
  Story story(options_for(2));
  story.join("a");
  story.join("b");
  const MemberId spare = story.join("c");
  story.say(spare, remote::PeerLost{story.state.epoch(), "a", unavailable("so I say")});
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
  story.say(1, remote::PeerLost{story.state.epoch(), "b", unavailable("broke")});
  EXPECT_NE(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterState, WaitsForAllThenLoadsAndStarts) {
  Story story(options_for(2));
  story.join("a");
  EXPECT_TRUE(story.trace.empty());
  EXPECT_THAT(story.state.obstacle().message(), HasSubstr("1 of 2 workers have joined"));
  EXPECT_EQ(story.state.status(story.now).state, "waiting");
  story.join("b");
  EXPECT_THAT(story.trace,
              ::testing::ElementsAre("load 1 layers 0-5 + embedding", "load 2 layers 6-11 + head",
                                     "start 1 next 'b' head ''", "start 2 next '' head 'a'",
                                     "pipeline epoch 1 over 2 stages, head a"));
  EXPECT_TRUE(story.state.obstacle().ok());
  const remote::ClusterStatus status = story.state.status(story.now);
  EXPECT_EQ(status.state, "ready");
  EXPECT_EQ(status.nodes[1].state, "ready");
  EXPECT_EQ(status.nodes[1].range->begin, 6);
}

TEST(ClusterState, PlansWithoutANumberOnceMemorySuffices) {
  Story story(options_for(0));
  story.join("small", 20);
  EXPECT_THAT(story.state.obstacle().message(), HasSubstr("short by"));
  story.join("other", 20);
  EXPECT_EQ(story.trace.back(), "pipeline epoch 1 over 2 stages, head small");
  story.join("third", 20);
  EXPECT_EQ(story.state.status(story.now).nodes[2].state, "spare");
}

TEST(ClusterState, ASpareSaysWhyItIsOne) {
  ClusterOptions options = options_for(0);
  options.plan.exclude = {"banned"};
  Story story(options);
  story.join("banned");
  EXPECT_THAT(story.state.obstacle().message(), HasSubstr("--exclude leaves out"));
  story.join("small", 20);
  story.join("large");
  EXPECT_EQ(story.trace.back(), "pipeline epoch 1 over 1 stages, head large");
  story.join("late");
  const remote::ClusterStatus status = story.state.status(story.now);
  EXPECT_EQ(status.nodes[0].state, "spare");
  EXPECT_EQ(status.nodes[0].detail, "--exclude leaves it out");
  EXPECT_EQ(status.nodes[1].state, "spare");
  EXPECT_THAT(status.nodes[1].detail, HasSubstr("one sequence would run at"));
  EXPECT_EQ(status.nodes[2].detail, "");
  EXPECT_EQ(status.nodes[3].detail, "it joined after the plan was made");
}

// A stage of 6 of 12 layers and the head, 13 MiB, read at 10 GB/s: 1,363.1 us. A token's products
// take 3.2 operations for each byte at 200 GOP/s: 218.1 us. A position of the cache is 64 bytes in
// each layer: 0.04 us. And half a millisecond that nobody measures.
TEST(ClusterState, AStageFarFromItsForecastIsNamed) {
  Story story(options_for(2));
  story.join("a");
  const MemberId b = story.join("b");
  remote::Heartbeat beat;
  beat.epoch = story.state.epoch();
  const auto serve = [&](Duration time, uint64_t steps, double step_ms, uint64_t tokens) {
    story.now += time;
    beat.steps_done += steps;
    beat.tokens_done += tokens;
    beat.positions_read += tokens * 10;
    beat.busy_ns += static_cast<uint64_t>(static_cast<double>(steps) * step_ms * 1e6);
    story.say(b, beat);
    return story.state.status(story.now).nodes[1];
  };
  const auto warnings = [&] {
    return std::count_if(story.notes.begin(), story.notes.end(), [](const std::string& text) {
      return text.find("b is slow") != std::string::npos;
    });
  };
  EXPECT_EQ(serve(milliseconds(0), 0, 0, 0).step_us, 0);
  // As foretold.
  remote::NodeStatus node = serve(milliseconds(2000), 500, 1.8, 500);
  EXPECT_NEAR(node.step_us, 1800, 1);
  EXPECT_NEAR(node.forecast_us, 500 + 1363.1 + 218.1 + 10 * 0.04, 1);
  EXPECT_EQ(node.detail, "");
  // Slow for a moment, then a prompt, then idle: nothing to tell.
  serve(milliseconds(2000), 100, 9, 100);
  serve(milliseconds(2000), 400, 2.2, 400);
  serve(milliseconds(2000), 4, 400, 2000);
  EXPECT_EQ(serve(milliseconds(9000), 0, 0, 0).detail, "");
  EXPECT_EQ(warnings(), 0);
  // Slow for longer: told once.
  serve(milliseconds(2000), 100, 9, 100);
  node = serve(milliseconds(2000), 100, 9, 100);
  EXPECT_THAT(node.detail, HasSubstr("slow: its steps take 9.0 ms, 4.3 times the 2.1 ms"));
  EXPECT_EQ(warnings(), 1);
  serve(milliseconds(2000), 100, 9, 100);
  EXPECT_EQ(warnings(), 1);
  EXPECT_EQ(serve(milliseconds(2000), 400, 2, 400).detail, "");
  // Counters that run backwards are another epoch's, or a worker's mistake.
  beat.busy_ns = 0;
  beat.steps_done = 0;
  EXPECT_EQ(serve(milliseconds(2000), 1, 9, 1).detail, "");
}

TEST(ClusterState, ExcludedWorkersAreNotWaitedFor) {
  ClusterOptions options = options_for(2);
  options.plan.exclude = {"banned"};
  Story story(options);
  story.join("a");
  story.join("banned");
  EXPECT_EQ(story.state.obstacle().message(), "1 of 2 workers have joined");
  story.join("b");
  EXPECT_EQ(story.trace.back(), "pipeline epoch 1 over 2 stages, head a");
}

TEST(ClusterState, EpochExceedsWhatAnyMemberHasSeen) {
  Story story(options_for(1));
  story.join("a", 100, 41);
  EXPECT_EQ(story.state.epoch(), 42U);
}

TEST(ClusterState, LostWorkerStopsThePipelineByNameAndItsReturnBringsItBack) {
  Story story(options_for(2));
  story.join("a");
  const MemberId b = story.join("b");
  story.trace.clear();
  story.lose(b);
  EXPECT_EQ(story.trace, std::vector<std::string>{"stop epoch 1"});
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("lost worker b (layers 6-11 + head)"));
  EXPECT_EQ(story.stop_reason.code(), StatusCode::unavailable);
  EXPECT_EQ(story.state.status(story.now).state, "degraded");
  story.pass(milliseconds(300));
  story.join("b");
  EXPECT_EQ(story.trace.back(), "pipeline epoch 2 over 2 stages, head a");
}

TEST(ClusterState, GoesOnWithoutTheLostWorkerIfTheRestSuffices) {
  Story story(options_for(3));
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  const MemberId c = story.join("c");
  story.lose(b);
  for (int i = 0; i < 10 && story.state.phase() != ClusterPhase::ready; ++i) {
    story.beat(a);
    story.beat(c);
    story.pass(milliseconds(500));
  }
  EXPECT_EQ(story.trace.back(), "pipeline epoch 2 over 2 stages, head a");
  const MemberId again = story.join("b");
  EXPECT_EQ(story.state.status(story.now).nodes[2].state, "spare");
  EXPECT_FALSE(story.ended.contains(again));
}

TEST(ClusterState, WaitsWhenTheRestDoesNotSuffice) {
  Story story(options_for(2));
  const MemberId a = story.join("a", 20);
  const MemberId b = story.join("b", 20);
  story.lose(b);
  for (int i = 0; i < 10; ++i) {
    story.beat(a);
    story.pass(milliseconds(500));
  }
  EXPECT_EQ(story.state.phase(), ClusterPhase::waiting);
  EXPECT_THAT(story.state.obstacle().message(), HasSubstr("short by"));
  story.join("b", 20);
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterState, FrozenAndHungWorkersAreGivenUp) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  for (int i = 0; i < 9; ++i) {
    story.beat(a);
    story.pass(milliseconds(500));
  }
  EXPECT_TRUE(story.ended.contains(b));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("lost worker b"));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("no heartbeat for"));
  story.join("b");
  EXPECT_EQ(story.state.status(story.now).nodes.size(), 2U);
  for (int i = 0; i < 130; ++i) {
    story.beat(a, remote::StageActivity::computing, static_cast<uint64_t>(i));
    story.beat(3, remote::StageActivity::computing, 7);
    story.pass(milliseconds(500));
  }
  EXPECT_TRUE(story.ended.contains(3));
  EXPECT_FALSE(story.ended.contains(a));
  EXPECT_THAT(story.ended[3].message(), HasSubstr("computed on step 8 for"));
}

TEST(ClusterState, AStageThatWaitsIsNotBlamed) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  // The head waits for the tail's token all the time; the tail is the one that hangs.
  for (int i = 0; i < 130 && story.ended.empty(); ++i) {
    story.beat(a, remote::StageActivity::awaiting_token, 7);
    story.beat(b, remote::StageActivity::computing, 6);
    story.pass(milliseconds(500));
  }
  EXPECT_TRUE(story.ended.contains(b));
  EXPECT_FALSE(story.ended.contains(a));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("lost worker b (layers 6-11 + head)"));
}

TEST(ClusterState, LongStepsGetTimeByTheirTokens) {
  ClusterOptions options = options_for(1);
  options.membership.stall_timeout = std::chrono::seconds(2);
  Story story(options);
  const MemberId a = story.join("a");
  ASSERT_EQ(story.state.phase(), ClusterPhase::ready);
  const Duration allowance = story.last_start.plan.token_allowance();
  ASSERT_GT(allowance, Duration::zero());
  const uint32_t tokens = static_cast<uint32_t>(std::chrono::seconds(6) / allowance);  // 8 s in all
  int beats = 0;
  while (story.ended.empty() && beats < 100) {
    ++beats;
    story.beat(a, remote::StageActivity::computing, 1, tokens);
    story.pass(milliseconds(500));
  }
  EXPECT_GE(beats, 15);
  EXPECT_LE(beats, 18);
}

TEST(ClusterState, AStallIsBlamedOnTheStageThatHoldsItUp) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  for (int i = 0; i < 40; ++i) {
    story.beat(a, remote::StageActivity::awaiting_token, 7);
    story.beat(b, remote::StageActivity::computing, 6);
    story.pass(milliseconds(500));
  }
  EXPECT_TRUE(story.ended.empty());
  story.stall(story.state.epoch());
  EXPECT_TRUE(story.ended.contains(b));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("lost worker b"));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("computed on step 7 for"));
}

TEST(ClusterState, AStallWithoutACulpritSaysBetweenWhomTheStepWasLost) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  story.beat(a, remote::StageActivity::idle, 4);
  story.beat(b, remote::StageActivity::idle, 3);
  story.stall(story.state.epoch() - 1);
  EXPECT_TRUE(story.stop_reason.ok()) << "another epoch's";
  story.stall(story.state.epoch());
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("a has done step 5, and b is at step 4"));
  EXPECT_TRUE(story.ended.empty());
  story.pass(std::chrono::seconds(1));
  ASSERT_EQ(story.state.phase(), ClusterPhase::ready);
  story.beat(a, remote::StageActivity::awaiting_token, 4);
  story.beat(b, remote::StageActivity::idle, 3);
  story.stall(story.state.epoch());
  EXPECT_THAT(story.stop_reason.message(),
              HasSubstr("b has done its part, and the result did not come"));
}

TEST(ClusterState, WorkerOfAnotherClusterIsRefusedByName) {
  ClusterOptions options = options_for(2);
  options.membership.cluster_id = options.cluster_id;
  Story story(options);
  story.cluster_id = "c2";
  const MemberId stranger = story.join("a");
  EXPECT_EQ(story.ended[stranger].code(), StatusCode::failed_precondition);
  EXPECT_EQ(story.ended[stranger].message(),
            "worker 'a' is a member of cluster c2, and this is cluster c1");
  story.cluster_id = "c1";
  story.join("a");
  story.cluster_id = "";
  story.join("b");
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterState, EpochsAreSavedBeforeAnybodyHearsOfThem) {
  ClusterOptions options = options_for(1);
  options.last_epoch = 11;
  ClusterState state(options);
  ClusterActions actions;
  remote::Hello hello;
  hello.name = "a";
  hello.memory_limit_bytes = 100 * kMiB;
  hello.last_epoch = 3;
  state.on_hello(1, hello, "127.0.0.1:5001", TimePoint{}, actions);
  bool saved = false;
  for (const ClusterAction& action : actions) {
    if (const auto* save = std::get_if<SaveEpoch>(&action)) {
      saved = true;
      EXPECT_EQ(save->epoch, 12U);
    }
    const auto* send = std::get_if<SendToMember>(&action);
    if (send == nullptr) continue;
    if (const auto* load = std::get_if<remote::LoadStage>(&send->message.command)) {
      EXPECT_TRUE(saved);
      EXPECT_EQ(load->epoch, 12U);
    }
  }
  EXPECT_TRUE(saved);
}

TEST(ClusterState, AWorkerThatMakesAPlanPossibleBringsTheModelBack) {
  for (const bool by_split : {false, true}) {
    ClusterOptions options = options_for(0);
    if (by_split) {
      options.plan.split = parse_split("a:6,b:6", 12).value();
    }
    Story story(options);
    const MemberId a = story.join("a", 20);
    const MemberId b = story.join("b", 20);
    ASSERT_EQ(story.state.phase(), ClusterPhase::ready);
    const uint64_t epoch = story.state.epoch();
    story.lose(b);
    // Long after the time that it was waited for.
    for (int i = 0; i < 60; ++i) {
      story.beat(a);
      story.pass(milliseconds(500));
    }
    EXPECT_EQ(story.state.phase(), ClusterPhase::waiting);
    if (!by_split) story.join("c", 1);  // too small to help
    EXPECT_EQ(story.state.phase(), ClusterPhase::waiting);
    story.join(by_split ? "b" : "d", 20);
    EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
    EXPECT_EQ(story.state.epoch(), epoch + 1);
  }
}

TEST(ClusterState, DuplicateNameIsRefusedByName) {
  Story story(options_for(3));
  story.join("a");
  const MemberId twin = story.join("a");
  EXPECT_EQ(story.ended[twin].code(), StatusCode::already_exists);
  EXPECT_THAT(story.ended[twin].message(),
              HasSubstr("'a' has joined already, from 127.0.0.1:5001"));
  EXPECT_THAT(story.ended[twin].message(), HasSubstr("1001"));
  EXPECT_EQ(story.state.status(story.now).nodes.size(), 1U);
}

TEST(ClusterState, BadNamesAndVersionsAreRefused) {
  Story story(options_for(3));
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a/b"), std::string("-a"),
        std::string("a\"b"), std::string(300, 'x'), std::string("\xE4\xBD\xA0")}) {
    EXPECT_EQ(story.ended[story.join(name)].code(), StatusCode::invalid_argument) << name;
  }
  remote::Hello old;
  old.name = "old";
  old.version.major = remote::kProtocolVersion.major + 1;
  ClusterActions actions;
  story.state.on_hello(99, old, "127.0.0.1:1", story.now, actions);
  EXPECT_EQ(std::get<EndStream>(actions.at(0)).why.code(), StatusCode::failed_precondition);
}

TEST(ClusterState, SameProcessOverANewStreamTakesItsPlace) {
  Story story(options_for(1));
  const MemberId a = story.join("a");
  remote::Hello hello;
  hello.name = "a";
  hello.identity = fmt::format("{:032x}", a);
  hello.memory_limit_bytes = 100 * kMiB;
  ClusterActions actions;
  story.state.on_hello(77, hello, "127.0.0.1:5001", story.now, actions);
  EXPECT_EQ(story.state.status(story.now).nodes.size(), 1U);
  EXPECT_NE(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterState, FailedLoadIsToldAndTriedAgainWithBackoff) {
  Story story(options_for(1));
  story.load_result = not_found("model tiny.gguf is in none of the --models folders");
  const MemberId a = story.join("a");
  EXPECT_THAT(story.state.obstacle().message(),
              HasSubstr("a could not load its layers: model tiny.gguf is in none"));
  for (int i = 0; i < 60; ++i) {
    story.beat(a);
    story.pass(milliseconds(500));
  }
  const auto loads =
      std::count_if(story.trace.begin(), story.trace.end(),
                    [](const std::string& line) { return line.starts_with("load"); });
  EXPECT_GE(loads, 3);
  EXPECT_LE(loads, 9) << "half a minute with growing pauses";
  story.load_result = {};
  for (int i = 0; i < 25; ++i) {
    story.beat(a);
    story.pass(milliseconds(500));
  }
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
}

TEST(ClusterState, PeerLostAndPipelineFailuresCountForTheirEpochOnly) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  story.join("b");
  const uint64_t epoch = story.state.epoch();
  story.say(a, remote::PeerLost{.epoch = epoch - 1, .peer = "b", .status = unavailable("reset")});
  story.fail_pipeline(epoch - 1);
  story.say(a, remote::PeerLost{.epoch = epoch, .peer = "gone", .status = unavailable("reset")});
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
  story.say(a, remote::PeerLost{.epoch = epoch, .peer = "b", .status = unavailable("reset")});
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("a lost b: reset"));
  story.pass(milliseconds(600));
  EXPECT_EQ(story.state.phase(), ClusterPhase::ready);
  EXPECT_EQ(story.state.epoch(), epoch + 1);
}

TEST(ClusterState, LoadThatMakesNoProgressEnds) {
  ClusterOptions options = options_for(2);
  options.load_timeout = std::chrono::seconds(2);
  Story story(options);
  story.obey = false;
  const MemberId a = story.join("a");
  const MemberId b = story.join("b");
  for (int i = 0; i < 5; ++i) {
    story.beat(a);
    story.beat(b);
    story.pass(milliseconds(500));
  }
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("a, b did not load"));
}

TEST(ClusterState, LeavingWorkerIsNamedWithItsReason) {
  Story story(options_for(2));
  const MemberId a = story.join("a");
  story.join("b");
  story.say(a, remote::Leaving{.reason = "stopped by SIGTERM"});
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("lost worker a"));
  EXPECT_THAT(story.stop_reason.message(), HasSubstr("stopped by SIGTERM"));
  EXPECT_TRUE(story.ended[a].ok());
}

}  // namespace
}  // namespace strata::coordinator
