#include "tests/cluster/cluster_harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <thread>

namespace strata::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kPatience = seconds(60);
constexpr auto kInterval = milliseconds(10);

// Asks again and again until the answer is yes, or patience is over.
template <typename Condition>
bool eventually(Condition condition, Duration patience = kPatience) {
  const TimePoint deadline = SystemClock().now() + patience;
  while (!condition()) {
    if (SystemClock().now() >= deadline) return false;
    std::this_thread::sleep_for(kInterval);
  }
  return true;
}

}  // namespace

std::string strata_binary() { return std::string(STRATA_BINARY_DIR) + "/strata"; }

std::string model_path(const std::string& name) {
  return std::string(STRATA_TEST_DATA) + "/models/" + name;
}

std::string run_strata(const std::vector<std::string>& arguments, std::string& end_text) {
  auto child = serve::ChildProcess::start(strata_binary(), arguments, {});
  if (!child.ok()) {
    end_text = child.status().to_string();
    return {};
  }
  eventually([&] { return !child.value()->is_running(); });
  end_text = child.value()->end_text();
  return child.value()->last_lines(1 << 20);
}

ClusterHarness::ClusterHarness(const HarnessOptions& options)
    : options_(options), token_("cluster-test-token-0123456789") {}

ClusterHarness::~ClusterHarness() {
  for (const auto& worker : workers_) worker->signal(SIGTERM);
  if (coordinator_) coordinator_->stop(seconds(5));
  for (const auto& worker : workers_) worker->stop(seconds(5));
}

void ClusterHarness::start_coordinator() {
  const std::string address_file = folder_.path() + "/address";
  std::vector<std::string> arguments = {"coordinator",
                                        "-m",
                                        model_path(options_.model),
                                        "--listen",
                                        address_.empty() ? "127.0.0.1:0" : address_,
                                        "--address-file",
                                        address_file,
                                        "--state",
                                        state_folder(),
                                        "--workers",
                                        std::to_string(options_.workers)};
  arguments.insert(arguments.end(), options_.coordinator_arguments.begin(),
                   options_.coordinator_arguments.end());
  std::remove(address_file.c_str());
  auto started = serve::ChildProcess::start(strata_binary(), arguments, {"STRATA_TOKEN=" + token_});
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  coordinator_ = std::move(started).value();
  ASSERT_TRUE(eventually([&] {
    std::ifstream file(address_file);
    return static_cast<bool>(std::getline(file, address_)) || !coordinator_->is_running();
  }));
  ASSERT_TRUE(coordinator_->is_running()) << coordinator_->last_lines();
}

serve::ChildProcess& ClusterHarness::start_worker(const std::string& name,
                                                  const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"worker",
                                  "--join",
                                  address_,
                                  "--name",
                                  name,
                                  "--threads",
                                  "1",
                                  "--speed",
                                  "10,200,50",
                                  "--cache",
                                  folder_.path() + "/cache-" + name};
  if (!options_.without_files) {
    all.insert(all.end(), {"--models", std::string(STRATA_TEST_DATA) + "/models"});
  }
  all.insert(all.end(), arguments.begin(), arguments.end());
  auto started = serve::ChildProcess::start(strata_binary(), all, {"STRATA_TOKEN=" + token_});
  EXPECT_TRUE(started.ok()) << started.status().to_string();
  workers_.push_back(std::move(started).value());
  return *workers_.back();
}

void ClusterHarness::start_all() {
  ASSERT_NO_FATAL_FAILURE(start_coordinator());
  for (uint32_t i = 1; i <= options_.workers; ++i) start_worker(fmt::format("worker-{}", i));
  ASSERT_TRUE(wait_state("ready")) << logs();
}

std::unique_ptr<coordinator::Client> ClusterHarness::client() {
  const auto address = remote::parse_address(address_, remote::AddressUse::dial);
  EXPECT_TRUE(address.ok());
  auto client = coordinator::Client::connect(*address, token_, seconds(5));
  EXPECT_TRUE(client.ok()) << client.status().to_string();
  return client.ok() ? std::move(client).value() : nullptr;
}

remote::ClusterStatus ClusterHarness::status() {
  const auto asked = client();
  if (asked == nullptr) return {};
  const auto status = asked->status();
  EXPECT_TRUE(status.ok()) << status.status().to_string();
  return status.ok() ? status.value() : remote::ClusterStatus();
}

bool ClusterHarness::wait_state(const std::string& state) {
  const auto asked = client();
  return asked != nullptr && eventually([&] {
           const auto status = asked->status();
           return status.ok() && status->state == state;
         });
}

RunResult ClusterHarness::run(const std::string& prompt, uint32_t max_tokens,
                              const std::function<void(size_t)>& on_token) {
  RunResult result;
  const auto asked = client();
  if (asked == nullptr) return result;
  remote::GenerateRequest request;
  request.prompt = prompt;
  request.max_tokens = max_tokens;
  request.temperature = 0.0F;
  request.ignore_end = true;
  result.status = asked->generate(request, [&](const remote::GenerateEvent& event) {
    if (const auto* token = std::get_if<remote::GenerateToken>(&event)) {
      result.text += token->text;
      if (token->id >= 0) result.tokens.push_back(token->id);
      if (on_token) on_token(result.tokens.size());
    }
    if (const auto* finished = std::get_if<remote::GenerateFinished>(&event)) {
      result.reason = finished->reason;
    }
  });
  return result;
}

std::string ClusterHarness::logs() const {
  std::string text = "coordinator:\n" + (coordinator_ ? coordinator_->last_lines() : "");
  for (const auto& worker : workers_) text += "worker:\n" + worker->last_lines();
  return text;
}

}  // namespace strata::test
