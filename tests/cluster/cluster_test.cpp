// Coordinator, workers and clients as real processes on loopback: equal answers whatever the
// cluster looks like, and clear ends when something is killed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cluster/cluster_harness.h"

namespace strata::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kPrompt = "Once upon a time";
constexpr uint32_t kTokens = 24;

// The tokens of one process without a cluster.
std::vector<int32_t> expected_tokens(const std::string& model, const std::string& prompt) {
  std::string end;
  const std::string text =
      run_strata({"run", "-m", model_path(model), "-p", prompt, "--raw", "--ignore-end",
                  "--temperature", "0", "-n", std::to_string(kTokens), "--threads", "1", "--json"},
                 end);
  EXPECT_EQ(end, "exit code 0") << text;
  const size_t begin = text.find('{');
  if (begin == std::string::npos) return {};
  const auto json = nlohmann::json::parse(text.substr(begin), nullptr, false);
  return json.is_object() ? json["tokens"].get<std::vector<int32_t>>() : std::vector<int32_t>();
}

class ClusterSize : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Workers, ClusterSize, ::testing::Values(1, 2, 3, 5));

TEST_P(ClusterSize, GivesTheTokensOfOneProcess) {
  const std::vector<int32_t> expected = expected_tokens("llama.gguf", kPrompt);
  ASSERT_EQ(expected.size(), kTokens);
  ClusterHarness cluster({.workers = GetParam()});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const RunResult result = cluster.run(kPrompt, kTokens);
  EXPECT_TRUE(result.status.ok()) << result.status.to_string() << cluster.logs();
  EXPECT_EQ(result.tokens, expected);
  EXPECT_EQ(result.reason, "length");
  // The model has 3 layers and the head: a fifth worker has nothing to hold.
  const remote::ClusterStatus status = cluster.status();
  const auto spares = std::count_if(status.nodes.begin(), status.nodes.end(),
                                    [](const remote::NodeStatus& n) { return n.state == "spare"; });
  EXPECT_EQ(spares, GetParam() == 5 ? 1 : 0);
}

TEST(Cluster, ManyClientsGetTheirOwnAnswers) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 6; ++i) {
    alone.push_back(cluster.run(fmt::format("Story number {}", i), kTokens).tokens);
    ASSERT_EQ(alone.back().size(), kTokens);
  }
  std::vector<std::thread> threads;
  std::vector<RunResult> together(18);
  for (size_t i = 0; i < together.size(); ++i) {
    threads.emplace_back(
        [&, i] { together[i] = cluster.run(fmt::format("Story number {}", i % 6), kTokens); });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_TRUE(together[i].status.ok()) << together[i].status.to_string();
    EXPECT_EQ(together[i].tokens, alone[i % 6]);
  }
}

TEST(Cluster, EightStagesServeManyShortRequests) {
  ClusterHarness cluster({.model = "gemma3.gguf", .workers = 8});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  for (const remote::NodeStatus& node : cluster.status().nodes) {
    EXPECT_EQ(node.state, "ready") << node.name;
  }
  std::vector<std::vector<int32_t>> alone;
  for (int i = 0; i < 4; ++i) {
    alone.push_back(cluster.run(fmt::format("Question {}", i), 6).tokens);
    ASSERT_EQ(alone.back().size(), 6U);
  }
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (size_t t = 0; t < 5; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 40; ++i) {
        const size_t which = (t + i) % alone.size();
        if (cluster.run(fmt::format("Question {}", which), 6).tokens != alone[which]) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0) << cluster.logs();
}

TEST(Cluster, WorkersWithoutTheFileGetTheirTensorsOnce) {
  const std::vector<int32_t> expected = expected_tokens("llama.gguf", kPrompt);
  // Each worker's layers are fixed: a new plan could give them ones that they never held.
  ClusterHarness cluster({.workers = 2,
                          .without_files = true,
                          .coordinator_arguments = {"--split", "worker-1:1,worker-2:2"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected);
  for (const remote::NodeStatus& node : cluster.status().nodes) {
    EXPECT_GT(node.memory.received_bytes, 0U) << node.name;
  }
  // A restarted worker has them in its cache.
  cluster.worker(0).stop(seconds(5));
  cluster.start_worker("worker-1");
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected) << cluster.logs();
  for (const remote::NodeStatus& node : cluster.status().nodes) {
    if (node.name == "worker-1") {
      EXPECT_EQ(node.memory.received_bytes, 0U);
    }
  }
}

TEST(Cluster, KilledWorkerEndsAllItsAnswersAndNothingElse) {
  ClusterHarness cluster({.workers = 3});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  std::vector<std::thread> threads;
  std::vector<RunResult> results(8);
  std::atomic<size_t> begun = 0;
  std::atomic<bool> killed = false;
  for (RunResult& result : results) {
    threads.emplace_back([&] {
      bool first = true;
      result = cluster.run(kPrompt, 400, [&](size_t) {
        if (first) ++begun;
        first = false;
        if (begun == results.size() && !killed.exchange(true)) cluster.worker(2).signal(SIGKILL);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const RunResult& result : results) {
    EXPECT_EQ(result.status.code(), StatusCode::unavailable) << result.status.to_string();
    EXPECT_THAT(result.status.message(), HasSubstr("worker-3"));
  }
  EXPECT_TRUE(cluster.coordinator().is_running());
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, 8).tokens.size(), 8U);
}

TEST(Cluster, KilledWorkerIsNamedAtOnceAndItsReturnServesAgain) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, kTokens).tokens;
  TimePoint killed{};
  const RunResult broken = cluster.run(kPrompt, 2000, [&](size_t count) {
    if (count != 5) return;
    killed = SystemClock().now();
    cluster.worker(1).signal(SIGKILL);
  });
  const Duration until_told = SystemClock().now() - killed;
  EXPECT_EQ(broken.status.code(), StatusCode::unavailable) << broken.status.to_string();
  EXPECT_THAT(broken.status.message(), HasSubstr("worker-2"));
  EXPECT_LT(until_told, seconds(1));
  EXPECT_GE(broken.tokens.size(), 5U);
  EXPECT_TRUE(cluster.coordinator().is_running());
  // Refused at once meanwhile, or served already; never a hang.
  const TimePoint begin = SystemClock().now();
  const RunResult meanwhile = cluster.run(kPrompt, 4);
  EXPECT_LT(SystemClock().now() - begin, seconds(5));
  if (!meanwhile.status.ok()) {
    EXPECT_EQ(meanwhile.status.code(), StatusCode::unavailable);
  }
  cluster.start_worker("worker-2");
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected) << cluster.logs();
}

TEST(Cluster, KilledCoordinatorIsSaidAndTheNextOneFindsItsWorkers) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, kTokens).tokens;
  const RunResult broken = cluster.run(kPrompt, 300, [&](size_t count) {
    if (count == 3) cluster.coordinator().signal(SIGKILL);
  });
  EXPECT_EQ(broken.status.code(), StatusCode::unavailable);
  EXPECT_THAT(broken.status.message(), HasSubstr("lost the coordinator at " + cluster.address()));
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected);
  EXPECT_GT(cluster.status().epoch, 1U);
}

// Resident memory of a process.
uint64_t rss_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  uint64_t pages = 0;
  file >> pages >> pages;
  return pages * 4096;
}

TEST(Cluster, CoordinatorsThatAreKilledLeaveNoMemoryWithTheirWorkers) {
#ifdef __SANITIZE_ADDRESS__  // keeps freed memory back, up to this
  constexpr uint64_t kGrowthMax = uint64_t{300} << 20;
#else
  constexpr uint64_t kGrowthMax = uint64_t{24} << 20;
#endif
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, kTokens).tokens;
  uint64_t first = 0;
  for (int round = 0; round < 8; ++round) {
    cluster.coordinator().signal(SIGKILL);
    cluster.coordinator().stop(seconds(5));
    ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
    ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
    ASSERT_EQ(cluster.run(kPrompt, kTokens).tokens, expected);
    if (round == 1) first = rss_bytes(cluster.worker(0).pid());
  }
  EXPECT_LT(rss_bytes(cluster.worker(0).pid()), first + kGrowthMax);
}

TEST(Cluster, EpochsGoOnWhenEverythingIsStartedAnew) {
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const remote::ClusterStatus before = cluster.status();
  cluster.worker(0).stop(seconds(5));
  cluster.coordinator().stop(seconds(5));
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  cluster.start_worker("fresh");
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_GT(cluster.status().epoch, before.epoch);
  EXPECT_EQ(cluster.status().cluster_id, before.cluster_id);
}

TEST(Cluster, FrozenWorkerIsLeftOutAndComesBackAsASpare) {
  ClusterHarness cluster({.workers = 3});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, kTokens).tokens;
  const TimePoint begin = SystemClock().now();
  const RunResult broken = cluster.run(kPrompt, 400, [&](size_t count) {
    if (count == 3) cluster.worker(1).signal(SIGSTOP);
  });
  EXPECT_EQ(broken.status.code(), StatusCode::unavailable);
  EXPECT_THAT(broken.status.message(), HasSubstr("worker-2"));
  EXPECT_LT(SystemClock().now() - begin, seconds(8));
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected);
  cluster.worker(1).signal(SIGCONT);
  const TimePoint deadline = SystemClock().now() + seconds(20);
  while (cluster.status().nodes.size() < 3 && SystemClock().now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(cluster.status().nodes.size(), 3U) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected);
}

TEST(Cluster, CancelEndsOneAnswerOnly) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, 60).tokens;
  const auto client = cluster.client();
  remote::GenerateRequest request;
  request.prompt = std::string("A long one");
  request.ignore_end = true;
  std::thread canceller;
  std::stop_source stop;
  RunResult other;
  const auto stop_at_first_token = [&](const remote::GenerateEvent& event) {
    if (!std::holds_alternative<remote::GenerateToken>(event) || canceller.joinable()) return;
    canceller = std::thread([&] {
      stop.request_stop();
      other = cluster.run(kPrompt, 60);
    });
  };
  const Status status = client->generate(request, stop_at_first_token, stop.get_token());
  if (canceller.joinable()) canceller.join();
  EXPECT_EQ(status.code(), StatusCode::cancelled) << status.to_string();
  EXPECT_EQ(other.tokens, expected);
  EXPECT_EQ(cluster.status().live_sequences, 0U);
}

TEST(Cluster, WrongTokenIsRefused) {
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const auto address = remote::parse_address(cluster.address(), remote::AddressUse::dial);
  const auto stranger = coordinator::Client::connect(*address, "another-token", seconds(5));
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(stranger.value()->status().status().code(), StatusCode::unauthenticated);
  EXPECT_EQ(stranger.value()->generate({}, [](const remote::GenerateEvent&) {}).code(),
            StatusCode::unauthenticated);
}

TEST(Cluster, BadRequestsAreErrorsAndTheClusterGoesOn) {
  ClusterHarness cluster({.workers = 2, .coordinator_arguments = {"--ctx", "64"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const auto client = cluster.client();
  const auto refusal = [&](remote::GenerateRequest request) {
    return client->generate(request, [](const remote::GenerateEvent&) {});
  };
  remote::GenerateRequest request;
  request.prompt = remote::TokenPrompt();
  EXPECT_EQ(refusal(request).code(), StatusCode::invalid_argument);
  request.prompt = remote::TokenPrompt{1, 2, 100000};
  EXPECT_THAT(refusal(request).message(), HasSubstr("100000"));
  request.prompt = remote::TokenPrompt(70, 5);
  const Status too_long = refusal(request);
  EXPECT_THAT(too_long.message(), HasSubstr("70 tokens and the context holds 64"));
  EXPECT_THAT(too_long.hint(), HasSubstr("--ctx"));
  request.prompt = remote::TokenPrompt{1, 2, 3};
  request.temperature = -1.0F;
  EXPECT_THAT(refusal(request).message(), HasSubstr("temperature"));
  EXPECT_EQ(cluster.run(kPrompt, 8).tokens.size(), 8U);
}

TEST(Cluster, TakenPortIsSaid) {
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  std::string end;
  const std::string text = run_strata(
      {"coordinator", "-m", model_path("llama.gguf"), "--listen", cluster.address()}, end);
  EXPECT_EQ(end, "exit code 1");
  EXPECT_THAT(text, HasSubstr("taken"));
}

TEST(Cluster, AddressBeyondLoopbackIsRefused) {
  std::string end;
  const std::string text =
      run_strata({"coordinator", "-m", model_path("llama.gguf"), "--listen", "0.0.0.0:0"}, end);
  EXPECT_EQ(end, "exit code 1");
  EXPECT_THAT(text, HasSubstr("--insecure-network"));
}

TEST(Cluster, TerminationLeavesNothingBehind) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  cluster.coordinator().stop(seconds(5));
  EXPECT_EQ(cluster.coordinator().end_text(), "exit code 0") << cluster.logs();
  for (size_t i = 0; i < cluster.worker_count(); ++i) {
    cluster.worker(i).stop(seconds(5));
    EXPECT_EQ(cluster.worker(i).end_text(), "exit code 0") << cluster.worker(i).last_lines();
  }
}

TEST(Cluster, DuplicateNameIsRefusedByName) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  serve::ChildProcess& twin = cluster.start_worker("worker-1");
  const TimePoint deadline = SystemClock().now() + seconds(20);
  while (twin.last_lines().find("'worker-1' has joined already") == std::string::npos &&
         SystemClock().now() < deadline) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_THAT(twin.last_lines(), HasSubstr("'worker-1' has joined already"));
  EXPECT_EQ(cluster.run(kPrompt, 8).tokens.size(), 8U);
}

TEST(Cluster, OneStateFolderServesOneCoordinator) {
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  std::string end;
  const std::string text = run_strata({"coordinator", "-m", model_path("llama.gguf"), "--listen",
                                       "127.0.0.1:0", "--state", cluster.state_folder()},
                                      end);
  EXPECT_EQ(end, "exit code 1");
  EXPECT_THAT(text, HasSubstr("another coordinator uses the state folder"));
}

TEST(Cluster, SplitThatNamesAWorkerTwiceIsRefused) {
  std::string end;
  const std::string text = run_strata({"coordinator", "-m", model_path("llama.gguf"), "--listen",
                                       "127.0.0.1:0", "--split", "w1:1,w1:2"},
                                      end);
  EXPECT_THAT(end, ::testing::StartsWith("exit code"));
  EXPECT_NE(end, "exit code 0");
  EXPECT_THAT(text, HasSubstr("'w1' is named twice"));
}

TEST(Cluster, SplitIsObeyed) {
  ClusterHarness cluster(
      {.workers = 2, .coordinator_arguments = {"--split", "worker-2:1,worker-1:2"}});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const remote::ClusterStatus status = cluster.status();
  for (const remote::NodeStatus& node : status.nodes) {
    ASSERT_TRUE(node.range.has_value());
    EXPECT_EQ(node.stage_index, node.name == "worker-2" ? 0U : 1U);
    EXPECT_EQ(node.range->count(), node.name == "worker-2" ? 1 : 2);
  }
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected_tokens("llama.gguf", kPrompt));
}

TEST(Cluster, LongPromptThroughThreeStagesEqualsOneProcess) {
  std::string prompt;
  for (int i = 0; i < 25; ++i) prompt += fmt::format("sentence {} ends. ", i);
  const std::vector<int32_t> expected = expected_tokens("llama.gguf", prompt);
  ASSERT_EQ(expected.size(), kTokens);
  ClusterHarness cluster({.workers = 3});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  EXPECT_EQ(cluster.run(prompt, kTokens).tokens, expected);
}

// The processes that `pid` has started and that still run.
std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", pid, pid));
  pid_t child = 0;
  while (file >> child) children.push_back(child);
  return children;
}

class LocalWorkers : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, LocalWorkers, ::testing::Values(SIGINT, SIGTERM, SIGKILL));

TEST_P(LocalWorkers, EndWithTheCommandThatStartedThem) {
  auto started = serve::ChildProcess::start(strata_binary(),
                                            {"bench", "-m", model_path("llama.gguf"), "--workers",
                                             "2", "--gen", "50000", "--threads", "1"},
                                            {});
  ASSERT_TRUE(started.ok());
  serve::ChildProcess& bench = *started.value();
  const TimePoint deadline = SystemClock().now() + seconds(30);
  std::vector<pid_t> workers;
  while (workers.size() < 2 && SystemClock().now() < deadline) {
    workers = children_of(bench.pid());
    std::this_thread::sleep_for(milliseconds(5));
  }
  ASSERT_EQ(workers.size(), 2U) << bench.last_lines();
  bench.signal(GetParam());
  const auto any_left = [&] {
    return bench.is_running() || std::any_of(workers.begin(), workers.end(),
                                             [](pid_t worker) { return ::kill(worker, 0) == 0; });
  };
  while (any_left() && SystemClock().now() < deadline) {
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_FALSE(any_left()) << bench.last_lines();
}

TEST(Cluster, EvalOverWorkersGivesTheBitsOfOneProcess) {
  const TempDir folder;
  const std::string ids = folder.write("ids.json", "[[1,5,9,200,31,7],[1,2,3,4,5,6,7,8,9,10,11]]");
  const auto bits = [&](std::vector<std::string> arguments) {
    std::vector<std::string> all = {"eval",     "-m",        model_path("gemma3.gguf"),
                                    "--tokens", ids,         "--bits",
                                    "--json",   "--threads", "1"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::string end;
    const std::string text = run_strata(all, end);
    EXPECT_EQ(end, "exit code 0") << text;
    return text.substr(std::min(text.find('['), text.size()));
  };
  const std::string one = bits({});
  EXPECT_THAT(one, HasSubstr("["));
  EXPECT_EQ(bits({"--workers", "2"}), one);
  EXPECT_EQ(bits({"--workers", "3", "--chunk", "2", "--batch", "2"}), one);
}

}  // namespace
}  // namespace strata::test
