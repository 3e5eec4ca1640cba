// StageHost: loads that succeed, fail, are cancelled and come twice; what is held afterwards; one
// stage over several devices.
//
// Method: a real host with its weight store, against a coordinator's end on loopback. The stage
// that comes out is asked for logits: what it computes is the proof that it was loaded right.
#include "worker/stage_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "backends/backends.h"
#include "tests/support/simulated_device.h"
#include "tests/worker/stage_host_support.h"

namespace strata::worker::test {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::strata::testing::SimulatedDevice;
using ::strata::testing::SimulatedDeviceOptions;
using ::testing::HasSubstr;

const std::string kModels = STRATA_TEST_DATA "/models";

// Accepts connections at most, and never says a word.
class SilentListener {
 public:
  SilentListener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(fd_, 16), 0);
    EXPECT_EQ(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    address_ = {"127.0.0.1", ntohs(address.sin_port)};
  }
  ~SilentListener() { ::close(fd_); }
  const remote::Address& address() const { return address_; }

 private:
  int fd_;
  remote::Address address_;
};

class StageHostTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(register_all(devices_, {}).ok()); }

  void expect_answers(TestHost& host, uint64_t epoch) {
    const remote::CommandDone started =
        host.run(remote::StartEpoch{.epoch = epoch, .next = {}, .head = {}});
    ASSERT_TRUE(started.status.ok()) << started.status.to_string();
    const std::vector<float> logits = host.answer(coordinator_, epoch, 2);
    ASSERT_FALSE(logits.empty());
    for (const float value : logits) ASSERT_TRUE(std::isfinite(value));
    if (expected_.empty()) expected_ = logits;
    EXPECT_EQ(logits, expected_);
  }

  const TestModel a_ = open_test_model(kModels + "/llama.gguf");
  const TestModel b_ = open_test_model(kModels + "/llama3.gguf");
  DeviceRegistry devices_;
  TestCoordinator coordinator_{a_};
  std::vector<float> expected_;  // of model a
};

TEST_F(StageHostTest, TheSameOrderWorksAfterALoadThatFailed) {
  const ::strata::test::TempDir folder;
  TestHost host(devices_, coordinator_.address(), {.folders = {folder.path()}});
  // The coordinator has another model than the one that it orders, and no folder has it.
  remote::LoadStage order = load_order(b_, 1);
  const remote::CommandDone failed = host.run(order);
  EXPECT_EQ(failed.status.code(), StatusCode::not_found) << failed.status.to_string();
  EXPECT_THAT(failed.status.message(), HasSubstr("worker-1"));
  EXPECT_THAT(failed.status.message(), HasSubstr("llama3.gguf"));
  EXPECT_EQ(host.host().held().first, "");
  EXPECT_EQ(host.host().heartbeat().used_bytes, 0u);
  const remote::CommandDone early =
      host.run(remote::StartEpoch{.epoch = 1, .next = {}, .head = {}});
  EXPECT_EQ(early.status.code(), StatusCode::failed_precondition);
  EXPECT_THAT(early.status.message(), HasSubstr("no stage is loaded"));
  // The same order again, in the same epoch and in the next, now that the file is there.
  fs::copy(kModels + "/llama3.gguf", folder.path() + "/llama3.gguf");
  for (const uint64_t epoch : {1u, 2u}) {
    order.epoch = epoch;
    const remote::CommandDone done = host.run(order);
    ASSERT_TRUE(done.status.ok()) << done.status.to_string();
    EXPECT_GT(done.memory.weights_bytes, 0u);
    EXPECT_EQ(done.memory.received_bytes, 0u);
    expect_answers(host, epoch);
  }
}

TEST_F(StageHostTest, AFailedLoadOfOtherLimitsLeavesNothingToStartWithButKeepsTheWeights) {
  TestHost host(devices_, coordinator_.address(), {});
  remote::LoadStage order = load_order(a_, 1);
  ASSERT_TRUE(host.run(order).status.ok());
  expect_answers(host, 1);
  const uint64_t sent = coordinator_.sent_bytes();
  EXPECT_GT(sent, 0u);
  order.epoch = 2;
  order.kv_type = "f64";
  const remote::CommandDone failed = host.run(order);
  EXPECT_THAT(failed.status.message(), HasSubstr("f64"));
  EXPECT_EQ(host.run(remote::StartEpoch{.epoch = 2, .next = {}, .head = {}}).status.code(),
            StatusCode::failed_precondition);
  EXPECT_EQ(host.host().held().first, a_.name.digest);
  order.epoch = 3;
  order.kv_type = "f32";
  const remote::CommandDone done = host.run(order);
  ASSERT_TRUE(done.status.ok()) << done.status.to_string();
  EXPECT_EQ(done.memory.received_bytes, 0u);
  EXPECT_EQ(coordinator_.sent_bytes(), sent);
  expect_answers(host, 3);
}

TEST_F(StageHostTest, LoadsOneModelAfterAnotherAndUnloads) {
  TestHost host(devices_, coordinator_.address(), {.folders = {kModels}});
  uint64_t epoch = 0;
  std::vector<std::vector<float>> logits;
  for (const TestModel* model : {&a_, &b_, &a_}) {
    const remote::CommandDone done = host.run(load_order(*model, ++epoch));
    ASSERT_TRUE(done.status.ok()) << done.status.to_string();
    EXPECT_EQ(host.host().held(), std::pair(model->name.digest, load_order(*model, 1).range));
    EXPECT_EQ(host.host().heartbeat().used_bytes,
              done.memory.weights_bytes + done.memory.cache_bytes + done.memory.compute_bytes);
    ASSERT_TRUE(host.run(remote::StartEpoch{.epoch = epoch, .next = {}, .head = {}}).status.ok());
    logits.push_back(host.answer(coordinator_, epoch, 2));
  }
  EXPECT_EQ(logits[0], logits[2]);
  EXPECT_NE(logits[0], logits[1]);
  ASSERT_TRUE(host.run(remote::Unload{.epoch = ++epoch}).status.ok());
  EXPECT_EQ(host.host().held().first, "");
  EXPECT_EQ(host.host().heartbeat().used_bytes, 0u);
  EXPECT_EQ(host.run(remote::StartEpoch{.epoch = epoch, .next = {}, .head = {}}).status.code(),
            StatusCode::failed_precondition);
  ASSERT_TRUE(host.run(load_order(a_, ++epoch)).status.ok());
  expect_answers(host, epoch);
}

TEST_F(StageHostTest, GoesPastADamagedFileInItsFolder) {
  const ::strata::test::TempDir folder;
  const std::string path = folder.path() + "/llama.gguf";
  TestHost host(devices_, coordinator_.address(), {.folders = {folder.path()}});
  // Cut short, then whole but with a changed byte: both times the coordinator's bytes are right.
  uint64_t epoch = 0;
  for (const bool is_cut : {true, false}) {
    fs::copy(kModels + "/llama.gguf", path, fs::copy_options::overwrite_existing);
    if (is_cut) {
      fs::resize_file(path, fs::file_size(path) - 1);
    } else {
      std::FILE* file = std::fopen(path.c_str(), "r+b");
      ASSERT_NE(file, nullptr);
      std::fseek(file, -100, SEEK_END);
      std::fputc('x', file);
      std::fclose(file);
    }
    ASSERT_TRUE(host.run(remote::Unload{.epoch = ++epoch}).status.ok());
    const remote::CommandDone done = host.run(load_order(a_, ++epoch));
    ASSERT_TRUE(done.status.ok()) << done.status.to_string();
    expect_answers(host, epoch);
  }
  EXPECT_EQ(coordinator_.sent_bytes(), a_.file->tensor_bytes_total()) << "once for both";
}

TEST_F(StageHostTest, ANewerEpochCancelsALoadThatWaits) {
  const SilentListener silent;
  TestHost host(devices_, silent.address(), {.folders = {kModels}});
  remote::LoadStage stuck = load_order(a_, 1);
  stuck.model.base_name = "elsewhere.gguf";  // no folder has it, and nobody answers
  const uint64_t first = host.send(stuck);
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  const uint64_t second = host.send(load_order(a_, 2));
  EXPECT_EQ(host.wait(first).status.code(), StatusCode::cancelled)
      << host.wait(first).status.to_string();
  EXPECT_TRUE(host.wait(second).status.ok()) << host.wait(second).status.to_string();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
}

TEST_F(StageHostTest, StopsWhileALoadWaits) {
  const SilentListener silent;
  TestHost host(devices_, silent.address(), {});
  host.send(load_order(a_, 1));
  std::this_thread::sleep_for(milliseconds(200));
  const auto begin = std::chrono::steady_clock::now();
  host.host().stop();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(3));
}

TEST_F(StageHostTest, TheSecondOfTwoQuickLoadsIsTheOneThatCounts) {
  TestHost host(devices_, coordinator_.address(), {.folders = {kModels}});
  for (uint64_t epoch = 1; epoch < 20; epoch += 2) {
    const uint64_t first = host.send(load_order(b_, epoch));
    const uint64_t second = host.send(load_order(a_, epoch + 1));
    const remote::CommandDone one = host.wait(first);
    EXPECT_TRUE(one.status.ok() || one.status.code() == StatusCode::cancelled ||
                one.status.code() == StatusCode::failed_precondition)
        << one.status.to_string();
    const remote::CommandDone two = host.wait(second);
    ASSERT_TRUE(two.status.ok()) << two.status.to_string();
    EXPECT_EQ(host.host().held().first, a_.name.digest);
    expect_answers(host, epoch + 1);
  }
}

TEST_F(StageHostTest, SaysExactlyWhatIsShortAndTakesASmallerOrder) {
  StageOptions options;
  options.range = {0, a_.layers, true, true};
  options.kv = {DType::f32, {static_cast<int32_t>(kTestBlocks)}};
  options.max_batch_tokens = 32;
  options.max_sequences = 4;
  options.max_context = 128;
  options.devices = devices_.devices();
  options.backend.threads = 1;
  const uint64_t need = StageModel::estimate(*a_.file, options).value().total();
  {
    TestHost enough(devices_, coordinator_.address(), {.folders = {}, .memory_limit_bytes = need});
    const remote::CommandDone done = enough.run(load_order(a_, 1));
    ASSERT_TRUE(done.status.ok()) << done.status.to_string();
    EXPECT_EQ(done.memory.weights_bytes + done.memory.cache_bytes + done.memory.compute_bytes,
              need);
    expect_answers(enough, 1);
  }
  TestHost host(devices_, coordinator_.address(),
                {.folders = {}, .memory_limit_bytes = need - 1024});
  const remote::CommandDone failed = host.run(load_order(a_, 1));
  EXPECT_EQ(failed.status.code(), StatusCode::resource_exhausted) << failed.status.to_string();
  EXPECT_THAT(failed.status.message(), HasSubstr("device CPU is short by 1.0 KiB: needs weights"));
  EXPECT_THAT(failed.status.hint(), HasSubstr("would fit: a context of 1"));
  EXPECT_EQ(host.host().held().first, "");
  remote::LoadStage smaller = load_order(a_, 2);
  smaller.blocks_per_group = {kTestBlocks - 4};
  ASSERT_TRUE(host.run(smaller).status.ok());
  // Larger again: the weights stay, the order is refused.
  EXPECT_EQ(host.run(load_order(a_, 3)).status.code(), StatusCode::resource_exhausted);
  EXPECT_EQ(host.host().held().first, a_.name.digest);
}

// Devices that compute by the same reference ops: what one alone gives is the oracle for several.
class SimulatedNode {
 public:
  explicit SimulatedNode(const std::vector<uint64_t>& accelerator_bytes, uint64_t host_bytes) {
    for (size_t i = 0; i < accelerator_bytes.size(); ++i) {
      add({.name = "SIM" + std::to_string(i),
           .total_bytes = accelerator_bytes[i],
           .refused = {},
           .wanted = {}});
    }
    add({.name = "HOST",
         .kind = DeviceKind::cpu,
         .total_bytes = host_bytes,
         .refused = {},
         .wanted = {},
         .host_memory = true});
  }
  const DeviceRegistry& registry() const { return registry_; }
  const SimulatedDevice& device(size_t index) const { return *devices_[index]; }

 private:
  void add(const SimulatedDeviceOptions& options) {
    auto device = std::make_unique<SimulatedDevice>(options);
    devices_.push_back(device.get());
    EXPECT_TRUE(registry_.add(std::move(device)).ok());
  }
  DeviceRegistry registry_;
  std::vector<SimulatedDevice*> devices_;
};

constexpr uint64_t kPlenty = uint64_t{1} << 30;

TEST_F(StageHostTest, GivesTheSameBitsOverThreeDevicesAsOnOne) {
  const SimulatedNode alone({}, kPlenty);
  {
    TestHost host(alone.registry(), coordinator_.address(), {});
    ASSERT_TRUE(host.run(load_order(a_, 1)).status.ok());
    expect_answers(host, 1);
  }
  // Plenty of memory, and just enough: the second set holds little more than a layer each.
  for (const std::vector<uint64_t>& sizes :
       {std::vector<uint64_t>{kPlenty, kPlenty}, {900'000, 1'200'000}}) {
    const SimulatedNode node(sizes, kPlenty);
    TestHost host(node.registry(), coordinator_.address(), {});
    for (const uint64_t epoch : {1u, 2u}) {
      const remote::CommandDone done = host.run(load_order(a_, epoch));
      ASSERT_TRUE(done.status.ok()) << done.status.to_string();
      expect_answers(host, epoch);
    }
    for (const size_t device : {0u, 1u}) {
      EXPECT_GT(node.device(device).counters().nodes, 0u) << device;
      EXPECT_GT(node.device(device).counters().allocated_bytes, 0) << device;
    }
    host.host().stop();
    EXPECT_EQ(node.device(0).counters().allocated_bytes, 0);
    EXPECT_EQ(node.device(1).counters().allocated_bytes, 0);
  }
}

TEST_F(StageHostTest, CountsEachDeviceExactly) {
  const SimulatedNode node({900'000, 1'200'000}, kPlenty);
  TestHost host(node.registry(), coordinator_.address(), {});
  remote::LoadStage order = load_order(a_, 1);
  const remote::CommandDone done = host.run(order);
  ASSERT_TRUE(done.status.ok()) << done.status.to_string();
  StageOptions options;
  options.range = order.range;
  options.kv = {DType::f32, {static_cast<int32_t>(kTestBlocks)}};
  options.max_batch_tokens = 32;
  options.max_sequences = 4;
  options.max_context = 128;
  options.devices = node.registry().devices();
  for (const size_t device : {0u, 1u}) {
    options.device_memory.push_back(
        {node.device(device).options().total_bytes, node.device(device).options().total_bytes});
  }
  options.device_memory.push_back({kPlenty, kPlenty});
  ASSERT_TRUE(assign_devices(*a_.file, options).ok());
  const StageEstimate estimate = StageModel::estimate(*a_.file, options).value();
  EXPECT_EQ(estimate.total(),
            done.memory.weights_bytes + done.memory.cache_bytes + done.memory.compute_bytes);
  for (const size_t device : {0u, 1u}) {
    EXPECT_EQ(static_cast<uint64_t>(node.device(device).counters().allocated_bytes),
              estimate.devices[device].needed_bytes())
        << device;
  }
}

TEST_F(StageHostTest, NamesTheDeviceThatIsShortAmongSeveral) {
  // The host also keeps the graphs of batches: 2 MiB of the 64 nodes of three layers.
  const SimulatedNode node({900'000, 300'000}, 700'000 + (2 << 20));
  TestHost host(node.registry(), coordinator_.address(), {});
  const remote::CommandDone failed = host.run(load_order(a_, 1));
  EXPECT_EQ(failed.status.code(), StatusCode::resource_exhausted) << failed.status.to_string();
  EXPECT_THAT(failed.status.message(), HasSubstr("is short by"));
  EXPECT_THAT(failed.status.message(), HasSubstr("needs weights"));
  EXPECT_THAT(failed.status.hint(), HasSubstr("would fit"));
  EXPECT_EQ(node.device(0).counters().allocated_bytes, 0) << "nothing was loaded";
  remote::LoadStage smaller = load_order(a_, 2);
  smaller.range = {0, 1, true, false};
  const remote::CommandDone done = host.run(smaller);
  EXPECT_TRUE(done.status.ok()) << done.status.to_string();
}

}  // namespace
}  // namespace strata::worker::test
