// Stages that hang although their workers live: found by name within the step's time, left out, and
// taken back once they run again. No request waits for ever.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <thread>

#include "tests/cluster/cluster_harness.h"
#include "tests/cluster/hung_thread.h"

namespace strata::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kPrompt = "Once upon a time";

class HungStage : public ::testing::TestWithParam<size_t> {};
// The head, which waits for the tail's tokens when it is well, and the tail.
INSTANTIATE_TEST_SUITE_P(Stages, HungStage, ::testing::Values(0, 1));

TEST_P(HungStage, IsNamedLeftOutAndTakenBack) {
  ClusterHarness cluster(
      {.workers = 2,
       .coordinator_arguments = {"--split", "worker-1:1,worker-2:2", "--step-timeout", "2"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, 12).tokens;
  ASSERT_EQ(expected.size(), 12U);
  const std::string name = GetParam() == 0 ? "worker-1" : "worker-2";
  std::unique_ptr<HungThread> hung;
  TimePoint begin{};
  // ptrace wants one thread for all: the client's listener runs on this one.
  const RunResult broken = cluster.run(kPrompt, 2000, [&](size_t count) {
    if (count != 5) return;
    begin = SystemClock().now();
    hung = std::make_unique<HungThread>(cluster.worker(GetParam()).pid(), "stage");
  });
  ASSERT_NE(hung, nullptr) << broken.status.to_string();
  if (!hung->ok()) GTEST_SKIP() << "this system forbids ptrace";
  // A thread that is stopped inside the network library may stop the whole worker's connections:
  // then it is the silence that gives it away.
  const Duration took = SystemClock().now() - begin;
  EXPECT_EQ(broken.status.code(), StatusCode::unavailable) << broken.status.to_string();
  EXPECT_THAT(broken.status.message(), HasSubstr("lost worker " + name));
  EXPECT_GE(took, seconds(1));
  EXPECT_LT(took, seconds(8));
  // It is not used meanwhile, and requests are refused at once.
  const TimePoint asked = SystemClock().now();
  EXPECT_EQ(cluster.run(kPrompt, 4).status.code(), StatusCode::unavailable);
  EXPECT_LT(SystemClock().now() - asked, seconds(2));
  EXPECT_TRUE(cluster.worker(GetParam()).is_running());
  hung.reset();
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, 12).tokens, expected) << cluster.logs();
}

TEST(Deadline, EndsARequestByTheClientsTime) {
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const auto client = cluster.client();
  remote::GenerateRequest request;
  request.prompt = std::string(kPrompt);
  request.ignore_end = true;
  request.max_tokens = 4000;
  request.timeout_ms = 20;
  const Status late = client->generate(request, [](const remote::GenerateEvent&) {});
  EXPECT_EQ(late.code(), StatusCode::deadline_exceeded) << late.to_string();
  EXPECT_THAT(late.message(), HasSubstr("deadline passed after"));
  EXPECT_EQ(cluster.run(kPrompt, 4).tokens.size(), 4U);
}

TEST(Deadline, EndsARequestByTheCoordinatorsTime) {
  ClusterHarness cluster(
      {.workers = 1, .coordinator_arguments = {"--request-timeout", "1", "--slots", "1"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const auto client = cluster.client();
  std::vector<std::thread> others;  // so that one answer takes its time
  std::vector<Status> ends(24);
  for (Status& end : ends) {
    others.emplace_back([&] { end = cluster.run(kPrompt, 3900).status; });
  }
  for (std::thread& other : others) other.join();
  size_t late = 0;
  for (const Status& end : ends) {
    late += end.code() == StatusCode::deadline_exceeded ? 1 : 0;
    EXPECT_TRUE(end.ok() || end.code() == StatusCode::deadline_exceeded) << end.to_string();
  }
  EXPECT_GT(late, 0U);
  EXPECT_EQ(cluster.status().live_sequences, 0U);
}

}  // namespace
}  // namespace strata::test
