#include "tests/worker/stage_host_support.h"

#include "runtime/model/hparams.h"

namespace strata::worker::test {

constexpr std::chrono::seconds kPatience{20};
constexpr uint32_t kPromptTokens = 9;

TestModel open_test_model(const std::string& path) {
  TestModel model;
  model.file = GgufFile::open(path).value();
  model.digest = compute_digest(*model.file).value();
  model.name = {path.substr(path.rfind('/') + 1), "sha256:" + model.digest.model};
  const Hparams hparams = read_hparams(*model.file).value();
  model.layers = hparams.n_layer;
  model.kv_groups = hparams.kv_groups.size();
  return model;
}

remote::LoadStage load_order(const TestModel& model, uint64_t epoch) {
  remote::LoadStage order;
  order.epoch = epoch;
  order.model = model.name;
  order.range = {0, model.layers, true, true};
  order.kv_type = "f32";
  order.context_tokens = 128;
  order.blocks_per_group.assign(model.kv_groups, kTestBlocks);
  order.max_step_tokens = 32;
  order.max_sequences = 4;
  order.stream_key = std::string(32, '5');
  order.steps_from = remote::kCoordinatorNode;
  return order;
}

TestCoordinator::TestCoordinator(const TestModel& served)
    : weights_(remote::WeightsService::create("secret", served.name, served.file, served.digest)),
      receiver_(std::make_unique<remote::PipelineReceiver>("secret", *this)) {
  remote::ServerOptions options;
  options.listen = {"127.0.0.1", 0};
  options.services = {&weights_->service()};
  options.streams = receiver_->acceptor();
  server_ = remote::RpcServer::start(options).value();
}

std::vector<StepResult> TestCoordinator::take_results(size_t count) {
  std::vector<StepResult> all = results_.wait(results_taken_ + count);
  all.erase(all.begin(), all.begin() + static_cast<ptrdiff_t>(results_taken_));
  results_taken_ += all.size();
  return all;
}

TestHost::TestHost(const DeviceRegistry& devices, const remote::Address& coordinator,
                   const TestHostOptions& options)
    : store_(std::make_unique<WeightStore>(
          WeightStoreOptions{options.folders, cache_.path() + "/strata", 1})) {
  StageHostOptions host;
  host.name = "worker-1";
  host.memory_limit_bytes = options.memory_limit_bytes;
  host.devices = &devices;
  host.store = store_.get();
  host.emit = [this](const remote::FromWorker& message) {
    const auto* done = std::get_if<remote::CommandDone>(&message);
    if (done == nullptr) return;
    const MutexLock lock(mutex_);
    done_[done->command_id] = *done;
    changed_.notify_all();
  };
  host_ = StageHost::create(std::move(host)).value();
  host_->begin_session(coordinator, "secret", "cluster");
}

uint64_t TestHost::send(remote::Command command) {
  host_->command(++last_command_, std::move(command));
  return last_command_;
}

remote::CommandDone TestHost::wait(uint64_t command_id) {
  const auto until = std::chrono::steady_clock::now() + kPatience;
  const MutexLock lock(mutex_);
  while (!done_.contains(command_id) && std::chrono::steady_clock::now() < until) {
    changed_.wait_until(mutex_, until);
  }
  EXPECT_TRUE(done_.contains(command_id)) << "command " << command_id << " was never answered";
  return done_[command_id];
}

std::vector<float> TestHost::answer(TestCoordinator& coordinator, uint64_t epoch,
                                    uint32_t decodes) {
  Steps steps(epoch);
  StepPlan first = steps.next();
  open_slot(first, 0, kPromptTokens, decodes + 2);
  add_prompt_row(first, 0, kPromptTokens);
  first.rows.back().flags |= StepRow::want_logits;
  EXPECT_TRUE(host_->handler().on_step("coordinator", {std::move(first), {}}).ok());
  for (uint32_t i = 0; i < decodes; ++i) {
    StepPlan plan = steps.next();
    add_decode_row(plan, 0, kPromptTokens + i);
    plan.rows.back().flags |= StepRow::want_logits;
    EXPECT_TRUE(host_->handler().on_step("coordinator", {std::move(plan), {}}).ok());
  }
  std::vector<float> logits;
  for (const StepResult& result : coordinator.take_results(1 + decodes)) {
    EXPECT_TRUE(result.status.ok()) << result.status.to_string();
    EXPECT_EQ(result.epoch, epoch);
    for (const TokenRecord& record : result.records) {
      logits.insert(logits.end(), record.logits.begin(), record.logits.end());
    }
  }
  return logits;
}

}  // namespace strata::worker::test
