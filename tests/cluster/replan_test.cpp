// Whom a cluster of real processes plans with: one worker that nobody reaches does not stop the
// others, one that comes back gets its layers again, and clients wait through it all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/base/random.h"
#include "tests/cluster/cluster_harness.h"
#include "worker/node_service.h"

namespace strata::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr const char* kPrompt = "The quick brown fox";
constexpr uint32_t kTokens = 8;

// A member that does as it is told, at an address where nobody listens.
class Unreachable {
 public:
  Unreachable(const ClusterHarness& cluster, const std::string& address) {
    worker::LinkOptions options;
    options.coordinator =
        remote::parse_address(cluster.address(), remote::AddressUse::dial).value();
    options.token = cluster.token();
    options.name = "far";
    options.heartbeat = [this] {
      remote::Heartbeat beat;
      beat.epoch = epoch_;
      return beat;
    };
    auto joined = worker::CoordinatorLink::join(options, [&] {
      remote::Hello hello;
      hello.name = "far";
      hello.identity = random_hex(16);
      hello.version = remote::kProtocolVersion;
      hello.listen_address = address;
      hello.memory_limit_bytes = uint64_t{1} << 30;
      remote::DeviceReport& device = hello.devices.emplace_back();
      device.name = "CPU";
      device.memory = {hello.memory_limit_bytes, hello.memory_limit_bytes};
      device.speed = {10e9, 200e9, 50e9};
      return hello;
    });
    status = joined.status();
    if (!joined.ok()) return;
    link_ = std::move(joined).value();
    thread_ = std::thread([this] {
      static_cast<void>(link_->run([this](remote::ToWorker message) {
        if (const auto* load = std::get_if<remote::LoadStage>(&message.command)) {
          epoch_ = load->epoch;
        }
        link_->send(remote::CommandDone{message.command_id, epoch_, ok_status(), {}});
      }));
    });
  }
  ~Unreachable() {
    if (link_) link_->leave("the test is over");
    if (thread_.joinable()) thread_.join();
  }

  Status status;

 private:
  std::atomic<uint64_t> epoch_ = 0;
  std::unique_ptr<worker::CoordinatorLink> link_;
  std::thread thread_;
};

const remote::NodeStatus* node_of(const remote::ClusterStatus& status, const std::string& name) {
  for (const remote::NodeStatus& node : status.nodes) {
    if (node.name == name) return &node;
  }
  return nullptr;
}

size_t stages(const remote::ClusterStatus& status) {
  return static_cast<size_t>(
      std::count_if(status.nodes.begin(), status.nodes.end(),
                    [](const remote::NodeStatus& node) { return node.range.has_value(); }));
}

// `strata run` against the cluster: how it ended.
std::string end_of_run(const ClusterHarness& cluster) {
  auto child = serve::ChildProcess::start(strata_binary(),
                                          {"run", "--coordinator", cluster.address(), "--raw", "-p",
                                           kPrompt, "-n", "4", "--wait", "30"},
                                          {"STRATA_TOKEN=" + cluster.token()});
  if (!child.ok()) return child.status().to_string();
  const TimePoint deadline = SystemClock().now() + seconds(40);
  while (child.value()->is_running() && SystemClock().now() < deadline) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  return child.value()->end_text() + child.value()->last_lines();
}

TEST(Replan, AWorkerThatNobodyReachesStaysASpareAndTheOthersServe) {
  ClusterHarness cluster({.workers = 3});
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  const Unreachable far(cluster, "127.0.0.1:9");
  ASSERT_TRUE(far.status.ok()) << far.status.to_string();
  cluster.start_worker("worker-1");
  cluster.start_worker("worker-2");
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  const remote::ClusterStatus status = cluster.status();
  EXPECT_EQ(stages(status), 2U) << cluster.logs();
  ASSERT_NE(node_of(status, "far"), nullptr);
  EXPECT_FALSE(node_of(status, "far")->range.has_value());
  EXPECT_THAT(node_of(status, "far")->detail, HasSubstr("left out for"));
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens.size(), kTokens);
  EXPECT_THAT(cluster.logs(), HasSubstr("could not start: cannot reach far at 127.0.0.1:9"));
}

TEST(Replan, TheCoordinatorsOwnAddressIsRefused) {
  ClusterHarness cluster({.workers = 1});
  ASSERT_NO_FATAL_FAILURE(cluster.start_coordinator());
  const Unreachable far(cluster, cluster.address());
  EXPECT_EQ(far.status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(far.status.message(), HasSubstr("which is the coordinator's own"));
}

// Killed, and back within the grace; then back long after it, when the other serves alone. A client
// that asks at the worst moment waits.
TEST(Replan, AWorkerThatComesBackGetsItsLayersAgain) {
  ClusterHarness cluster({.workers = 2});
  ASSERT_NO_FATAL_FAILURE(cluster.start_all());
  const std::vector<int32_t> expected = cluster.run(kPrompt, kTokens).tokens;
  const auto has_two_stages = [&] {
    const TimePoint deadline = SystemClock().now() + seconds(30);
    while (SystemClock().now() < deadline) {
      const remote::ClusterStatus status = cluster.status();
      if (status.state == "ready" && stages(status) == 2) return true;
      std::this_thread::sleep_for(milliseconds(20));
    }
    return false;
  };
  cluster.worker(1).signal(SIGKILL);
  ASSERT_TRUE(cluster.wait_state("degraded")) << cluster.logs();
  cluster.start_worker("worker-2");
  ASSERT_TRUE(cluster.wait_state("ready")) << cluster.logs();
  EXPECT_EQ(stages(cluster.status()), 2U) << cluster.logs();

  cluster.worker(2).signal(SIGKILL);
  ASSERT_TRUE(cluster.wait_state("degraded")) << cluster.logs();
  EXPECT_THAT(end_of_run(cluster), HasSubstr("exit code 0")) << "it waits for the next plan";
  EXPECT_EQ(stages(cluster.status()), 1U) << cluster.logs();
  cluster.start_worker("worker-2");
  ASSERT_TRUE(has_two_stages()) << cluster.logs();
  EXPECT_EQ(cluster.run(kPrompt, kTokens).tokens, expected) << cluster.logs();
}

}  // namespace
}  // namespace strata::test
