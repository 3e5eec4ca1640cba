// The engine's thread with a pipeline that answers from another thread.
#include "coordinator/engine/engine_loop.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <latch>

#include "tests/coordinator/fake_pipeline.h"

namespace strata::coordinator {
namespace {

using ::testing::HasSubstr;

PipelineShape small_shape() {
  PipelineShape shape;
  shape.stage_count = 2;
  shape.groups = {{.window = 0, .block_count = 64}};
  shape.context = 200;
  shape.vocab_size = 97;
  return shape;
}

// Answers each step at once, on the caller's thread; can be told to stay silent.
class EchoSink final : public StepSink {
 public:
  EchoSink(EngineLoop& loop, const PipelineShape& shape)
      : loop_(loop), pipeline_(shape, Duration(1), Duration(1)) {}
  void submit(StepFrame frame) override {
    pipeline_.submit(frame.plan, {});
    if (pipeline_.fault.empty() && !silent) loop_.deliver(pipeline_.take_result());
    EXPECT_EQ(pipeline_.fault, "");
  }
  std::atomic<bool> silent = false;

 private:
  EngineLoop& loop_;
  FakePipeline pipeline_;
};

struct Waiter {
  std::promise<RequestFinish> finish;
  std::vector<int32_t> tokens;
  RequestListener listener() {
    return [this](const RequestEvent& event) {
      if (const auto* token = std::get_if<RequestToken>(&event)) tokens.push_back(token->token);
      if (const auto* end = std::get_if<RequestFinish>(&event)) finish.set_value(*end);
    };
  }
};

TEST(EngineLoop, ServesManyThreads) {
  EngineLoop loop({});
  const auto sink = std::make_shared<EchoSink>(loop, small_shape());
  loop.attach(small_shape(), sink);
  std::vector<std::unique_ptr<Waiter>> waiters(24);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < waiters.size(); ++i) {
    waiters[i] = std::make_unique<Waiter>();
    threads.emplace_back([&, i] {
      loop.submit({.prompt = {static_cast<int32_t>(i), 2, 3}, .max_new_tokens = 20},
                  waiters[i]->listener());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < waiters.size(); ++i) {
    EXPECT_EQ(waiters[i]->finish.get_future().get().reason, FinishReason::length);
    EXPECT_EQ(waiters[i]->tokens, expected_tokens({static_cast<int32_t>(i), 2, 3}, 20, {}, 97));
  }
}

TEST(EngineLoop, RefusesWithoutAPipelineAndEndsRequestsOnDetach) {
  EngineLoop loop({});
  Waiter early;
  loop.submit({.prompt = {1}, .max_new_tokens = 1}, early.listener());
  EXPECT_EQ(early.finish.get_future().get().status.code(), StatusCode::unavailable);

  const auto sink = std::make_shared<EchoSink>(loop, small_shape());
  sink->silent = true;
  loop.attach(small_shape(), sink);
  Waiter waiting;
  Waiter cancelled;
  loop.submit({.prompt = {1}, .max_new_tokens = 1}, waiting.listener());
  loop.cancel(loop.submit({.prompt = {1}, .max_new_tokens = 1}, cancelled.listener()));
  EXPECT_EQ(cancelled.finish.get_future().get().reason, FinishReason::cancelled);
  loop.detach(unavailable("lost worker-1"));
  EXPECT_THAT(waiting.finish.get_future().get().status.message(), HasSubstr("worker-1"));
}

TEST(EngineLoop, TellsOfAHangingPipelineAndKeepsDeadlines) {
  EngineLoop loop({.step_timeout = std::chrono::milliseconds(600)});
  std::promise<uint64_t> failed;
  loop.on_pipeline_failure([&](uint64_t epoch, const Status&) { failed.set_value(epoch); });
  const auto sink = std::make_shared<EchoSink>(loop, small_shape());
  sink->silent = true;
  PipelineShape shape = small_shape();
  shape.epoch = 1;
  loop.attach(shape, sink);
  Waiter late;
  Waiter waiting;
  Request request{.prompt = {1}, .max_new_tokens = 1};
  request.deadline = SystemClock().now() + std::chrono::milliseconds(10);
  loop.submit(request, late.listener());
  loop.submit({.prompt = {1}, .max_new_tokens = 1}, waiting.listener());
  EXPECT_EQ(late.finish.get_future().get().status.code(), StatusCode::deadline_exceeded);
  EXPECT_EQ(waiting.finish.get_future().get().status.code(), StatusCode::unavailable);
  EXPECT_EQ(failed.get_future().get(), 1U);
}

TEST(EngineLoop, EndsEveryRequestWhenItStops) {
  Waiter waiting;
  {
    EngineLoop loop({});
    const auto sink = std::make_shared<EchoSink>(loop, small_shape());
    sink->silent = true;
    loop.attach(small_shape(), sink);
    loop.submit({.prompt = {1}, .max_new_tokens = 1}, waiting.listener());
  }
  EXPECT_THAT(waiting.finish.get_future().get().status.message(), HasSubstr("shutting down"));
}

}  // namespace
}  // namespace strata::coordinator
