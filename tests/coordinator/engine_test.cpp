// The engine against a simulated pipeline in virtual time: every request ends exactly once, with
// the tokens that a plain loop over the same "model" gives, whatever else happens.
#include "coordinator/engine/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/coordinator/fake_pipeline.h"

namespace strata::coordinator {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr int32_t kVocab = 97;

PipelineShape shape_of(uint32_t stages, uint32_t blocks) {
  PipelineShape shape;
  shape.epoch = 7;
  shape.stage_count = stages;
  shape.groups = {{.window = 0, .block_count = blocks}, {.window = 24, .block_count = blocks}};
  shape.context = 400;
  shape.vocab_size = kVocab;
  shape.slots = 8;
  shape.step_tokens = 64;
  return shape;
}

struct Outcome {
  std::vector<int32_t> tokens;
  std::vector<float> logits;
  std::vector<uint32_t> progress;
  std::vector<RequestFinish> finishes;
};

// Runs engine and pipeline against each other.
class Simulation {
 public:
  explicit Simulation(const PipelineShape& shape, const EngineLimits& limits = {})
      : engine(limits), pipeline(shape, microseconds(1000), microseconds(50)) {
    engine.attach(shape);
  }

  RequestId submit(Request request) {
    const RequestId id = ++last_id_;
    outcomes[id];
    EngineActions actions;
    engine.submit(
        id, std::move(request), [this, id](const RequestEvent& event) { record(id, event); }, now,
        actions);
    go(actions);
    return id;
  }
  void cancel(RequestId id) {
    EngineActions actions;
    engine.cancel(id, actions);
    go(actions);
  }
  // The next result or deadline. False if nothing is to come.
  bool advance();
  void run() {
    for (int i = 0; i < 1'000'000 && unfinished() > 0; ++i) ASSERT_TRUE(advance()) << "stalled";
    EXPECT_EQ(pipeline.fault, "");
  }
  size_t unfinished() const {
    size_t count = 0;
    for (const auto& [id, outcome] : outcomes) count += outcome.finishes.empty() ? 1 : 0;
    return count;
  }

  TimePoint now{};
  Engine engine;
  FakePipeline pipeline;
  std::map<RequestId, Outcome> outcomes;
  bool pipeline_failed = false;

 private:
  void go(EngineActions& actions) {
    if (engine.attached()) engine.plan(now, actions);
    pipeline_failed = pipeline_failed || actions.pipeline_failed;
    for (const StepPlan& plan : actions.steps) pipeline.submit(plan, now);
    for (const ClientEvent& event : actions.events) event.listener(event.event);
  }
  void record(RequestId id, const RequestEvent& event) {
    Outcome& outcome = outcomes[id];
    EXPECT_TRUE(outcome.finishes.empty()) << "an event after the finish of request " << id;
    if (const auto* token = std::get_if<RequestToken>(&event)) {
      outcome.tokens.push_back(token->token);
    } else if (const auto* progress = std::get_if<RequestProgress>(&event)) {
      outcome.progress.push_back(progress->computed);
    } else if (const auto* logits = std::get_if<RequestLogits>(&event)) {
      EXPECT_EQ(logits->position, outcome.logits.size() / kVocab);
      outcome.logits.insert(outcome.logits.end(), logits->logits.begin(), logits->logits.end());
    } else {
      outcome.finishes.push_back(std::get<RequestFinish>(event));
    }
  }

  RequestId last_id_ = 0;
};

bool Simulation::advance() {
  const auto result = pipeline.next_result();
  const auto wakeup = engine.next_wakeup();
  if (!result && !wakeup) return false;
  EngineActions actions;
  if (result && (!wakeup || *result <= *wakeup)) {
    now = std::max(now, *result);
    engine.deliver(pipeline.take_result(), now, actions);
  } else {
    now = std::max(now, *wakeup);
    engine.tick(now, actions);
  }
  go(actions);
  return true;
}

Request request_of(uint32_t seed, uint32_t prompt, uint32_t max_new) {
  Random random(seed);
  Request request;
  for (uint32_t i = 0; i < prompt; ++i) {
    request.prompt.push_back(static_cast<int32_t>(random() % kVocab));
  }
  request.max_new_tokens = max_new;
  return request;
}

void expect_complete(const Outcome& outcome, const Request& request) {
  const auto expected =
      expected_tokens(request.prompt, request.max_new_tokens, request.end_ids, kVocab);
  EXPECT_EQ(outcome.tokens, expected);
  ASSERT_EQ(outcome.finishes.size(), 1U);
  const RequestFinish& finish = outcome.finishes[0];
  EXPECT_TRUE(finish.status.ok()) << finish.status.to_string();
  EXPECT_EQ(finish.reason, expected.size() == request.max_new_tokens ? FinishReason::length
                                                                     : FinishReason::end_token);
  EXPECT_EQ(finish.prompt_tokens, request.prompt.size());
  EXPECT_EQ(finish.new_tokens, expected.size());
}

class EngineStages : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(OneToFive, EngineStages, ::testing::Values(1, 2, 3, 4, 5));

TEST_P(EngineStages, OneSequenceGivesTheModelsTokens) {
  for (const uint32_t prompt : {1U, 15U, 16U, 17U, 63U, 64U, 65U, 200U}) {
    Simulation simulation(shape_of(GetParam(), 64));
    const Request request = request_of(prompt, prompt, 40);
    const RequestId id = simulation.submit(request);
    simulation.run();
    expect_complete(simulation.outcomes[id], request);
  }
}

TEST_P(EngineStages, EightSequencesOfAllLengthsEndRight) {
  Simulation simulation(shape_of(GetParam(), 128));
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 8; ++i) {
    requests.push_back(request_of(i, 1 + i * 23, 1 + (i * 31) % 60));
    if (i % 2 == 1) requests.back().end_ids = {static_cast<int32_t>(i), 50, 60};
    simulation.submit(requests.back());
  }
  simulation.run();
  for (uint32_t i = 0; i < 8; ++i) expect_complete(simulation.outcomes[i + 1], requests[i]);
  EXPECT_EQ(simulation.engine.counters().live, 0U);
  EXPECT_EQ(simulation.engine.counters().pushed_out, 0U);
}

TEST_P(EngineStages, TooFewBlocksPushOutTheYoungestAndLoseNothing) {
  // Room for one and a half of the sequences; more requests than slots.
  PipelineShape shape = shape_of(GetParam(), 14);
  shape.prefill_chunk = 16;
  Simulation simulation(shape);
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 12; ++i) {
    requests.push_back(request_of(i + 100, 5 + (i * 37) % 90, 60 + i));
    requests.back().want_progress = true;
    simulation.submit(requests.back());
  }
  simulation.run();
  for (uint32_t i = 0; i < 12; ++i) {
    Outcome& outcome = simulation.outcomes[i + 1];
    expect_complete(outcome, requests[i]);
    // Who begins anew is not told so.
    EXPECT_TRUE(
        std::is_sorted(outcome.progress.begin(), outcome.progress.end(), std::less_equal<>()))
        << i;
  }
  EXPECT_GT(simulation.engine.counters().pushed_out, 0U);
}

TEST_P(EngineStages, PipelineIsFullWithAsManySequencesAsStages) {
  const uint32_t stages = GetParam();
  Simulation simulation(shape_of(stages, 256));
  for (uint32_t i = 0; i < stages; ++i) simulation.submit(request_of(i, 4, 300));
  simulation.run();
  const double elapsed = std::chrono::duration<double>(simulation.now.time_since_epoch()).count();
  const double busy = std::chrono::duration<double>(simulation.pipeline.busy).count();
  EXPECT_GT(busy / (elapsed * stages), stages == 1 ? 0.9 : 0.8);
}

TEST_P(EngineStages, PromptChunksFillTheStages) {
  const uint32_t stages = GetParam();
  PipelineShape shape = shape_of(stages, 256);
  shape.step_tokens = 32;
  Simulation simulation(shape);
  simulation.submit(request_of(1, 380, 1));
  simulation.run();
  // Twelve chunks one after the other, and the way through the other stages once.
  const auto longest = microseconds(1000) * (12 + stages - 1) + microseconds(50) * (stages + 2);
  EXPECT_LE(simulation.now.time_since_epoch(), longest);
}

TEST_P(EngineStages, CancelAtEachPointLeavesTheOthersAlone) {
  for (int point = 0; point < 60; ++point) {
    Simulation simulation(shape_of(GetParam(), 40));
    const Request kept = request_of(1, 30, 40);
    const Request dropped = request_of(2, 90, 40);
    const RequestId first = simulation.submit(kept);
    const RequestId second = simulation.submit(dropped);
    const RequestId third = simulation.submit(kept);
    for (int i = 0; i < point && simulation.unfinished() > 0; ++i) simulation.advance();
    simulation.cancel(second);
    simulation.cancel(second);
    ASSERT_EQ(simulation.outcomes[second].finishes.size(), 1U);
    simulation.run();
    expect_complete(simulation.outcomes[first], kept);
    expect_complete(simulation.outcomes[third], kept);
    const Outcome& outcome = simulation.outcomes[second];
    const auto all = expected_tokens(dropped.prompt, 40, {}, kVocab);
    ASSERT_LE(outcome.tokens.size(), all.size());
    EXPECT_TRUE(std::equal(outcome.tokens.begin(), outcome.tokens.end(), all.begin()));
    if (outcome.tokens.size() < all.size()) {
      EXPECT_EQ(outcome.finishes[0].reason, FinishReason::cancelled);
    }
  }
}

TEST_P(EngineStages, FailedStepEndsItsRequestsOnly) {
  for (uint64_t step = 1; step < 20; ++step) {
    Simulation simulation(shape_of(GetParam(), 64));
    simulation.pipeline.failing_steps = {step};
    std::vector<Request> requests;
    for (uint32_t i = 0; i < 4; ++i) {
      requests.push_back(request_of(i, 20 + 40 * i, 20));
      simulation.submit(requests.back());
    }
    simulation.run();
    uint32_t failed = 0;
    for (uint32_t i = 0; i < 4; ++i) {
      const Outcome& outcome = simulation.outcomes[i + 1];
      ASSERT_EQ(outcome.finishes.size(), 1U);
      if (outcome.finishes[0].status.ok()) {
        expect_complete(outcome, requests[i]);
      } else {
        ++failed;
        EXPECT_THAT(outcome.finishes[0].status.message(), HasSubstr("worker-2"));
      }
    }
    EXPECT_GT(failed, 0U);
    EXPECT_FALSE(simulation.pipeline_failed);
    const Request after = request_of(9, 33, 12);
    const RequestId id = simulation.submit(after);
    simulation.run();
    expect_complete(simulation.outcomes[id], after);
  }
}

TEST_P(EngineStages, RowErrorEndsOneRequest) {
  Simulation simulation(shape_of(GetParam(), 64));
  simulation.pipeline.row_errors = {{2, 30}};
  const Request request = request_of(3, 20, 40);
  const RequestId first = simulation.submit(request);
  const RequestId second = simulation.submit(request);
  simulation.run();
  expect_complete(simulation.outcomes[first], request);
  const RequestFinish& finish = simulation.outcomes[second].finishes.at(0);
  EXPECT_EQ(finish.status.code(), StatusCode::data_loss);
  EXPECT_EQ(finish.new_tokens, 10U);
}

// A frame of records has its bound, and a grammar may be half a megabyte.
TEST(Engine, AStepOpensAsManySequencesAsItsFrameCarries) {
  PipelineShape shape = shape_of(1, 64);
  shape.slots = 12;
  Engine engine({});
  engine.attach(shape);
  EngineActions actions;
  for (RequestId id = 1; id <= shape.slots; ++id) {
    Request request = request_of(static_cast<uint32_t>(id), 2, 3);
    request.sampling.grammar = {.kind = GrammarSpec::Kind::regex,
                                .text = std::string(kGrammarBytesMax, 'a')};
    engine.submit(
        id, std::move(request), [](const RequestEvent&) {}, {}, actions);
  }
  engine.plan({}, actions);
  ASSERT_EQ(actions.steps.size(), 2U);
  EXPECT_EQ(actions.steps[0].opens.size(), 8U);
  EXPECT_EQ(actions.steps[1].opens.size(), 4U);
}

TEST_P(EngineStages, ReportsHowFarAPromptIsComputed) {
  PipelineShape shape = shape_of(GetParam(), 64);
  shape.prefill_chunk = 32;
  Simulation simulation(shape);
  Request request = request_of(5, 100, 4);
  const RequestId silent = simulation.submit(request);
  request.want_progress = true;
  const RequestId told = simulation.submit(request);
  while (simulation.outcomes[told].tokens.empty()) {
    EXPECT_LE(simulation.outcomes[told].progress.size(), 3U);
    ASSERT_TRUE(simulation.advance());
  }
  // The last chunk's end is the first token.
  EXPECT_EQ(simulation.outcomes[told].progress, (std::vector<uint32_t>{32, 64, 96}));
  simulation.run();
  EXPECT_EQ(simulation.outcomes[told].progress.size(), 3U);
  EXPECT_TRUE(simulation.outcomes[silent].progress.empty());
  expect_complete(simulation.outcomes[told], request);
}

TEST_P(EngineStages, AStepEndsAtTheBorderOfAPrompt) {
  PipelineShape shape = shape_of(GetParam(), 64);
  shape.prefill_chunk = 32;
  Simulation simulation(shape);
  Request request = request_of(5, 100, 4);
  request.want_progress = true;
  request.step_border = 41;
  const RequestId id = simulation.submit(request);
  simulation.run();
  EXPECT_EQ(simulation.outcomes[id].progress, (std::vector<uint32_t>{32, 41, 73}));
  expect_complete(simulation.outcomes[id], request);
}

// Each try has a sequence id of its own. The other request is not held up, and nobody waits in the
// queue behind one that is not ready.
TEST_P(EngineStages, ATailThatIsNotReadyIsAskedAgain) {
  PipelineShape shape = shape_of(GetParam(), 64);
  shape.slots = 1;
  Simulation simulation(shape);
  simulation.pipeline.unready = {1, 3, 4};
  Request request = request_of(3, 70, 20);
  request.want_logits = true;
  const RequestId first = simulation.submit(request);
  const Request short_one = request_of(4, 9, 5);
  const RequestId second = simulation.submit(short_one);
  while (simulation.outcomes[second].finishes.empty()) ASSERT_TRUE(simulation.advance());
  EXPECT_TRUE(simulation.outcomes[first].tokens.empty());
  const TimePoint begin = simulation.now;
  simulation.run();
  EXPECT_GE(simulation.now - begin, milliseconds(10)) << "the second wait is twice the first";
  expect_complete(simulation.outcomes[first], request);
  expect_complete(simulation.outcomes[second], short_one);
  EXPECT_EQ(simulation.outcomes[first].logits.size(), size_t{70} * kVocab);
  EXPECT_EQ(simulation.engine.counters().pushed_out, 0U);
}

TEST_P(EngineStages, HangingStepEndsEverythingAtItsTimeout) {
  Simulation simulation(shape_of(GetParam(), 64), {.step_timeout = std::chrono::seconds(5)});
  simulation.pipeline.unanswered_steps = {4, 5, 6, 7, 8, 9, 10, 11, 12};
  simulation.submit(request_of(1, 10, 50));
  simulation.submit(request_of(2, 10, 50));
  simulation.run();
  EXPECT_TRUE(simulation.pipeline_failed);
  for (const auto& [id, outcome] : simulation.outcomes) {
    EXPECT_EQ(outcome.finishes.at(0).status.code(), StatusCode::unavailable);
    EXPECT_THAT(outcome.finishes[0].status.message(), HasSubstr("step 4 was not answered"));
  }
  EXPECT_LT(simulation.now.time_since_epoch(), std::chrono::seconds(6));
}

TEST_P(EngineStages, LostPipelineEndsAllAndTheNextOneServes) {
  Simulation simulation(shape_of(GetParam(), 64));
  for (uint32_t i = 0; i < 10; ++i) simulation.submit(request_of(i, 30, 50));
  for (int i = 0; i < 12; ++i) simulation.advance();
  EngineActions actions;
  simulation.engine.detach(unavailable("lost worker-2: connection reset"), actions);
  for (const ClientEvent& event : actions.events) event.listener(event.event);
  EXPECT_EQ(simulation.unfinished(), 0U);
  const RequestId refused = simulation.submit(request_of(1, 5, 5));
  EXPECT_THAT(simulation.outcomes[refused].finishes.at(0).status.message(), HasSubstr("worker-2"));

  PipelineShape next = shape_of(GetParam(), 64);
  next.epoch = 8;
  simulation.engine.attach(next);
  simulation.pipeline = FakePipeline(next, microseconds(1000), microseconds(50));
  EngineActions late;
  simulation.engine.deliver({.epoch = 7, .step_id = 1, .records = {}, .status = {}}, simulation.now,
                            late);
  EXPECT_TRUE(late.events.empty());
  const Request request = request_of(5, 40, 30);
  const RequestId id = simulation.submit(request);
  simulation.run();
  expect_complete(simulation.outcomes[id], request);
}

TEST_P(EngineStages, RandomTrafficEndsRight) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    PipelineShape shape = shape_of(GetParam(), 26 + random() % 40);
    shape.step_tokens = 2 + random() % 60;
    shape.prefill_chunk = random() % 3 == 0 ? 1 + random() % 40 : 0;
    shape.slots = 1 + random() % 8;
    Simulation simulation(shape);
    std::map<RequestId, Request> requests;
    std::vector<RequestId> cancelled;
    for (int i = 0; i < 40; ++i) {
      Request request = request_of(random(), 1 + random() % 150, random() % 80);
      request.want_logits = random() % 4 == 0;
      if (random() % 2 == 0) request.end_ids = {7, static_cast<int32_t>(random() % kVocab)};
      const RequestId id = simulation.submit(request);
      requests.emplace(id, std::move(request));
      for (uint32_t k = random() % 20; k > 0; --k) simulation.advance();
      if (random() % 8 == 0) {
        cancelled.push_back(1 + random() % id);
        simulation.cancel(cancelled.back());
      }
    }
    simulation.run();
    for (const auto& [id, request] : requests) {
      const Outcome& outcome = simulation.outcomes[id];
      ASSERT_EQ(outcome.finishes.size(), 1U);
      if (outcome.finishes[0].reason == FinishReason::cancelled) continue;
      expect_complete(outcome, request);
      if (!request.want_logits) continue;
      ASSERT_EQ(outcome.logits.size(), request.prompt.size() * kVocab);
      for (size_t p = 0; p < request.prompt.size(); ++p) {
        EXPECT_EQ(outcome.logits[p * kVocab], static_cast<float>(p));
      }
    }
    // Only cancelled sequences' blocks could leak: a request that needs them all still runs.
    const Request last = request_of(1, 150, 100);
    const RequestId id = simulation.submit(last);
    simulation.run();
    expect_complete(simulation.outcomes[id], last);
  }
}

TEST(Engine, RefusesWhatCanNeverRun) {
  Simulation simulation(shape_of(2, 20));
  const auto refusal = [&](Request request) {
    const RequestId id = simulation.submit(std::move(request));
    EXPECT_EQ(simulation.outcomes[id].finishes.size(), 1U);
    return simulation.outcomes[id].finishes.at(0).status;
  };
  EXPECT_THAT(refusal(request_of(1, 0, 5)).message(), HasSubstr("the prompt is empty"));
  const Status too_long = refusal(request_of(1, 400, 5));
  EXPECT_EQ(too_long.code(), StatusCode::invalid_argument);
  EXPECT_THAT(too_long.message(), HasSubstr("400 tokens and the context holds 400"));
  Request negative = request_of(1, 5, 5);
  negative.prompt[3] = -1;
  EXPECT_THAT(refusal(negative).message(), HasSubstr("token 3 of the prompt is -1"));
  Request beyond = request_of(1, 5, 5);
  beyond.prompt[0] = kVocab;
  EXPECT_THAT(refusal(beyond).message(), HasSubstr("must be in [0, 97)"));
  Request hot = request_of(1, 5, 5);
  hot.sampling.temperature = -1;
  EXPECT_THAT(refusal(hot).message(), HasSubstr("temperature"));
  // 20 blocks hold 320 positions.
  EXPECT_THAT(refusal(request_of(1, 350, 10)).message(), HasSubstr("KV cache"));
  const Request whole = request_of(1, 300, 21);
  const RequestId id = simulation.submit(whole);
  simulation.run();
  expect_complete(simulation.outcomes[id], whole);
}

TEST(Engine, EndsAtTheContextsEnd) {
  Simulation simulation(shape_of(2, 64));
  Request request = request_of(1, 390, 1000);
  const RequestId id = simulation.submit(request);
  simulation.run();
  request.max_new_tokens = 10;
  expect_complete(simulation.outcomes[id], request);
}

TEST(Engine, FullQueueRefusesAtOnce) {
  Simulation simulation(shape_of(1, 64), {.queue_max = 3});
  for (int i = 0; i < 11; ++i) simulation.submit(request_of(1, 10, 10));
  const RequestId refused = simulation.submit(request_of(1, 10, 10));
  EXPECT_EQ(simulation.outcomes[refused].finishes.at(0).status.code(),
            StatusCode::resource_exhausted);
  simulation.run();
}

TEST(Engine, DeadlineEndsTheRequestWhereverItIs) {
  Simulation simulation(shape_of(3, 64));
  Request request = request_of(1, 100, 200);
  request.deadline = simulation.now + milliseconds(30);
  const RequestId id = simulation.submit(request);
  simulation.run();
  const Outcome& outcome = simulation.outcomes[id];
  EXPECT_EQ(outcome.finishes.at(0).status.code(), StatusCode::deadline_exceeded);
  EXPECT_GT(outcome.tokens.size(), 0U);
  EXPECT_LE(simulation.now.time_since_epoch(), milliseconds(31));
}

// What the engine plans for two requests, with nothing answered.
std::vector<StepPlan> plans_for(const PipelineShape& shape, const EngineLimits& limits,
                                std::optional<TimePoint> deadline) {
  Engine engine(limits);
  engine.attach(shape);
  EngineActions actions;
  Request request;
  request.prompt.assign(10, 1);
  request.max_new_tokens = 5;
  request.deadline = deadline;
  engine.submit(
      1, request, [](const RequestEvent&) {}, TimePoint{}, actions);
  engine.plan(TimePoint{}, actions);
  return actions.steps;
}

TEST(Engine, EveryStepCarriesALimit) {
  PipelineShape shape = shape_of(2, 64);
  shape.token_allowance = milliseconds(100);
  const EngineLimits limits{.step_timeout = std::chrono::seconds(5)};
  const auto steps = plans_for(shape, limits, {});
  ASSERT_GE(steps.size(), 2U);
  EXPECT_EQ(steps[0].budget_ms, 6000U) << "5 s and ten tokens";
  EXPECT_EQ(steps[1].budget_ms, 6000U + 5100U) << "the one before it comes first";
  const auto hurried = plans_for(shape, limits, TimePoint{} + milliseconds(700));
  EXPECT_EQ(hurried[0].budget_ms, 700U);
}

TEST(Engine, ALongStepGetsTheTimeOfItsTokens) {
  PipelineShape shape = shape_of(1, 64);
  shape.token_allowance = milliseconds(100);
  Simulation simulation(shape, {.step_timeout = std::chrono::seconds(5)});
  simulation.pipeline.unanswered_steps = {1};
  Request request;
  request.prompt.assign(50, 1);
  request.max_new_tokens = 0;  // one step
  const RequestId id = simulation.submit(request);
  simulation.run();
  EXPECT_TRUE(simulation.pipeline_failed);
  EXPECT_EQ(simulation.now - TimePoint{}, std::chrono::seconds(10));
  EXPECT_THAT(simulation.outcomes[id].finishes.at(0).status.message(),
              HasSubstr("step 1 was not answered within 10"));
}

TEST(Engine, ShortPromptDoesNotWaitForALongOne) {
  PipelineShape shape = shape_of(1, 64);
  shape.step_tokens = 16;
  Simulation simulation(shape);
  simulation.submit(request_of(1, 380, 1));
  const RequestId second = simulation.submit(request_of(2, 10, 3));
  while (simulation.outcomes[second].finishes.empty()) ASSERT_TRUE(simulation.advance());
  EXPECT_LT(simulation.now.time_since_epoch(), milliseconds(8));
}

}  // namespace
}  // namespace strata::coordinator
