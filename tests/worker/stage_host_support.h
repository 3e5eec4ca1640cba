// A StageHost with a coordinator's end on loopback: weights are served, results and reports kept.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/remote/weights_service.h"
#include "runtime/base/mutex.h"
#include "runtime/gguf/digest.h"
#include "tests/support/temp_dir.h"
#include "tests/worker/step_support.h"
#include "worker/stage_host.h"

namespace strata::worker::test {

inline constexpr uint32_t kTestBlocks = 32;  // of each KV group

// A model of tests/data with its name as a coordinator says it.
struct TestModel {
  std::shared_ptr<const GgufFile> file;
  ModelDigest digest;
  remote::ModelName name;
  int32_t layers = 0;
  size_t kv_groups = 1;
};
TestModel open_test_model(const std::string& path);

// The coordinator: serves one model's tensors, takes results. Threads: any.
class TestCoordinator final : public remote::PipelineHandler {
 public:
  explicit TestCoordinator(const TestModel& served);
  ~TestCoordinator() override { server_->shutdown(std::chrono::milliseconds(0)); }

  const remote::Address& address() const { return server_->address(); }
  uint64_t sent_bytes() const { return weights_->sent_bytes(); }
  // Waits for `count` results that were not taken before.
  std::vector<StepResult> take_results(size_t count);

  Status on_stream_open(const remote::StreamCaller&) override { return ok_status(); }
  Status on_large_frame(const remote::StreamCaller&, uint64_t) override { return ok_status(); }
  Status on_step(const std::string&, StepFrame) override { return ok_status(); }
  Status on_result(const std::string&, StepResult result) override {
    results_.add(std::move(result));
    return ok_status();
  }
  void on_stream_closed(const remote::StreamCaller&, const Status&) override {}

 private:
  // Results of all hosts that ran, one after the other.
  Collector<StepResult> results_;
  size_t results_taken_ = 0;
  std::unique_ptr<remote::WeightsService> weights_;
  std::unique_ptr<remote::PipelineReceiver> receiver_;
  std::unique_ptr<remote::RpcServer> server_;
};

struct TestHostOptions {
  std::vector<std::string> folders;
  uint64_t memory_limit_bytes = uint64_t{1} << 30;
};

// The worker's side, with commands in a word each.
class TestHost {
 public:
  TestHost(const DeviceRegistry& devices, const remote::Address& coordinator,
           const TestHostOptions& options);

  StageHost& host() { return *host_; }
  // Queues a command; its number.
  uint64_t send(remote::Command command);
  // The answer to a command; a failure after 20 s.
  remote::CommandDone wait(uint64_t command_id);
  remote::CommandDone run(remote::Command command) { return wait(send(std::move(command))); }

  // Through the stage that runs: a prompt, then `decodes` single tokens. Logits of every position.
  std::vector<float> answer(TestCoordinator& coordinator, uint64_t epoch, uint32_t decodes);

 private:
  const ::strata::test::TempDir cache_;
  std::unique_ptr<WeightStore> store_;
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, remote::CommandDone> done_ STRATA_GUARDED_BY(mutex_);
  uint64_t last_command_ = 0;
  std::unique_ptr<StageHost> host_;
};

// All layers of the model, as one stage.
remote::LoadStage load_order(const TestModel& model, uint64_t epoch);

}  // namespace strata::worker::test
