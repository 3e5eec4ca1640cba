// Workers and a coordinator in one process, over real sockets on loopback, with a tiny model: join,
// load (from a folder and from the coordinator), answer, lose and find each other again.
#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>

#include "backends/backends.h"
#include "coordinator/client.h"
#include "coordinator/coordinator.h"
#include "runtime/gguf/digest.h"
#include "tests/support/temp_dir.h"

namespace strata::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

const std::string kModelPath = STRATA_TEST_DATA "/models/llama.gguf";

std::unique_ptr<coordinator::Coordinator> start_coordinator(uint32_t workers,
                                                            remote::Address listen = {"127.0.0.1",
                                                                                      0},
                                                            const std::string& state_folder = {}) {
  static DeviceRegistry* devices = [] {
    auto* registry = new DeviceRegistry();
    EXPECT_TRUE(register_all(*registry, {}).ok());
    return registry;
  }();
  coordinator::CoordinatorOptions options;
  const std::shared_ptr<GgufFile> file = GgufFile::open(kModelPath).value();
  const ModelDigest digest = compute_digest(*file).value();
  options.file = file;
  options.model_digest = "sha256:" + digest.model;
  options.tensor_digests = digest.tensors;
  options.token = "secret";
  options.listen = listen;
  options.state_folder = state_folder;
  options.cluster.profile = coordinator::profile_model(*file, {.kv_type = DType::f32,
                                                               .step_tokens = 64,
                                                               .slots = 4,
                                                               .context = 128,
                                                               .devices = devices->devices()})
                                .value();
  options.cluster.plan.context = 128;
  options.cluster.plan.step_tokens = 64;
  options.cluster.kv_type = "f32";
  options.cluster.slots = 4;
  options.cluster.workers = workers;
  // Left to itself, the planner gives so small a model to one worker.
  static constexpr std::array<const char*, 3> kSplits = {"3", "2,1", "1,1,1"};
  options.cluster.plan.split = coordinator::parse_split(kSplits.at(workers - 1), 3).value();
  auto started = coordinator::Coordinator::start(std::move(options));
  EXPECT_TRUE(started.ok()) << started.status().to_string();
  return std::move(started).value();
}

WorkerOptions worker_options(const remote::Address& coordinator, const std::string& name,
                             const std::string& cache) {
  WorkerOptions options;
  options.coordinator = coordinator;
  options.name = name;
  options.threads = 1;
  options.memory_limit_bytes = uint64_t{1} << 30;
  options.cache_folder = cache;
  options.read_token = [] { return Result<std::string>("secret"); };
  options.speed = DeviceSpeed{1e10, 1e11, 1e10};
  return options;
}

// A worker with the thread that runs it.
class Running {
 public:
  explicit Running(const WorkerOptions& options) : worker_(Worker::create(options).value()) {
    thread_ = std::thread([this] {
      ended_ = worker_->run();
      has_ended_ = true;
    });
  }
  ~Running() {
    worker_->stop("the test is over");
    if (thread_.joinable()) thread_.join();
  }
  // What run() gave; waits for it.
  Status ended() {
    thread_.join();
    return ended_;
  }
  void stop() { worker_->stop("the test stops it"); }
  bool has_ended() const { return has_ended_; }

 private:
  std::unique_ptr<Worker> worker_;
  Status ended_;
  std::atomic<bool> has_ended_ = false;
  std::thread thread_;
};

Result<std::vector<int32_t>> generate(const remote::Address& address, uint32_t count) {
  auto client = TRY(coordinator::Client::connect(address, "secret", seconds(5)));
  remote::GenerateRequest request;
  request.prompt = remote::TokenPrompt{1, 5, 9, 40, 7};
  request.max_tokens = count;
  request.temperature = 0.0f;
  request.ignore_end = true;
  std::vector<int32_t> tokens;
  TRY(client->generate(request, [&](const remote::GenerateEvent& event) {
    if (const auto* token = std::get_if<remote::GenerateToken>(&event)) tokens.push_back(token->id);
  }));
  return tokens;
}

TEST(Worker, OneTwoAndThreeWorkersAnswerAlike) {
  const test::TempDir cache;
  std::vector<int32_t> first;
  for (const uint32_t count : {1u, 2u, 3u}) {
    const auto coordinator = start_coordinator(count);
    std::vector<std::unique_ptr<Running>> workers;
    for (uint32_t i = 1; i <= count; ++i) {
      WorkerOptions options = worker_options(coordinator->address(), "worker-" + std::to_string(i),
                                             cache.path() + "/" + std::to_string(i));
      // Every other one has no file and receives its tensors.
      if (i % 2 == 1) options.model_folders = {STRATA_TEST_DATA "/models"};
      workers.push_back(std::make_unique<Running>(options));
    }
    ASSERT_TRUE(coordinator->wait_ready(seconds(30))) << coordinator->obstacle().to_string();
    const auto tokens = generate(coordinator->address(), 20);
    ASSERT_TRUE(tokens.ok()) << tokens.status().to_string();
    EXPECT_EQ(tokens.value().size(), 20u);
    if (first.empty()) first = tokens.value();
    EXPECT_EQ(tokens.value(), first) << count << " workers";
    for (const remote::NodeStatus& node : coordinator->status().nodes) {
      EXPECT_EQ(node.state, "ready");
      EXPECT_GT(node.memory.weights_bytes, 0u);
      EXPECT_EQ(node.process_id, static_cast<uint64_t>(::getpid()));
    }
  }
}

TEST(Worker, LeavesAndIsReplacedByAnother) {
  const test::TempDir cache;
  const auto coordinator = start_coordinator(1);
  auto one = std::make_unique<Running>(worker_options(coordinator->address(), "one", cache.path()));
  ASSERT_TRUE(coordinator->wait_ready(seconds(30))) << coordinator->obstacle().to_string();
  const auto before = generate(coordinator->address(), 8);
  ASSERT_TRUE(before.ok());
  const auto begin = std::chrono::steady_clock::now();
  one->stop();
  EXPECT_TRUE(one->ended().ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
  const auto refused = generate(coordinator->address(), 8);
  EXPECT_EQ(refused.status().code(), StatusCode::unavailable) << refused.status().to_string();
  const Running two(worker_options(coordinator->address(), "two", cache.path()));
  ASSERT_TRUE(coordinator->wait_ready(seconds(30))) << coordinator->obstacle().to_string();
  const auto after = generate(coordinator->address(), 8);
  ASSERT_TRUE(after.ok()) << after.status().to_string();
  EXPECT_EQ(after.value(), before.value());
}

TEST(Worker, WaitsForACoordinatorAndFindsItAgainAfterARestart) {
  const test::TempDir cache;
  const std::string state = cache.path() + "/state";
  remote::Address address;
  {
    const auto gone = start_coordinator(1);
    address = gone->address();
  }
  Running worker(worker_options(address, "one", cache.path()));
  std::vector<int32_t> first;
  for (int round = 0; round < 2; ++round) {
    const auto coordinator = start_coordinator(1, address, state);
    ASSERT_TRUE(coordinator->wait_ready(seconds(30))) << coordinator->obstacle().to_string();
    EXPECT_EQ(coordinator->status().epoch, static_cast<uint64_t>(round) + 1);
    const auto tokens = generate(address, 8);
    ASSERT_TRUE(tokens.ok()) << tokens.status().to_string();
    if (first.empty()) first = tokens.value();
    EXPECT_EQ(tokens.value(), first);
    // The second time the weights are there already.
    EXPECT_EQ(coordinator->status().nodes[0].memory.received_bytes > 0, round == 0);
  }
  EXPECT_FALSE(worker.has_ended());
}

TEST(Worker, OfOneClusterIsRefusedByNameByAnother) {
  const test::TempDir cache;
  remote::Address address;
  std::unique_ptr<Running> worker;
  {
    const auto ours = start_coordinator(1);
    address = ours->address();
    worker = std::make_unique<Running>(worker_options(address, "one", cache.path()));
    ASSERT_TRUE(ours->wait_ready(seconds(30))) << ours->obstacle().to_string();
  }
  const auto theirs = start_coordinator(1, address);
  const Status ended = worker->ended();
  EXPECT_EQ(ended.code(), StatusCode::failed_precondition);
  EXPECT_THAT(ended.message(), HasSubstr("worker 'one' is a member of cluster"));
  EXPECT_THAT(ended.message(), HasSubstr(theirs->status().cluster_id));
  // One that belongs to nobody is welcome.
  const Running fresh(worker_options(address, "one", cache.path()));
  EXPECT_TRUE(theirs->wait_ready(seconds(30))) << theirs->obstacle().to_string();
}

TEST(Worker, EndsWithTheReasonWhenItIsRefused) {
  const test::TempDir cache;
  const auto coordinator = start_coordinator(1);
  WorkerOptions options = worker_options(coordinator->address(), "one", cache.path());
  options.read_token = [] { return Result<std::string>("wrong"); };
  Running worker(options);
  const Status ended = worker.ended();
  EXPECT_EQ(ended.code(), StatusCode::unauthenticated);
  EXPECT_THAT(ended.message(), HasSubstr("token"));
}

TEST(Worker, RefusesWhatDoesNotFitItsMemory) {
  const test::TempDir cache;
  const auto coordinator = start_coordinator(1);
  WorkerOptions options = worker_options(coordinator->address(), "one", cache.path());
  options.memory_limit_bytes = 64 << 10;
  Running worker(options);
  EXPECT_FALSE(coordinator->wait_ready(milliseconds(1500)));
  EXPECT_THAT(coordinator->obstacle().to_string(), HasSubstr("64.0 KiB"));
  EXPECT_FALSE(worker.has_ended());
}

TEST(Worker, ChecksNameAndAddressesBeforeAnythingElse) {
  WorkerOptions options = worker_options({"127.0.0.1", 1}, "a b", "/nowhere");
  EXPECT_THAT(Worker::create(options).status().message(), HasSubstr("worker name 'a b'"));
  options.name = "a";
  options.coordinator = {"10.0.0.1", 1};
  EXPECT_EQ(Worker::create(options).status().code(), StatusCode::permission_denied);
  options.coordinator = {"127.0.0.1", 1};
  options.listen = {"0.0.0.0", 0};
  EXPECT_EQ(Worker::create(options).status().code(), StatusCode::permission_denied);
}

}  // namespace
}  // namespace strata::worker
