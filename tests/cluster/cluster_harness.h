// A whole cluster of real processes on loopback, for tests: ephemeral ports, a token of its own,
// every wait bounded. Nothing is slept for: waiting is for a state that is asked for.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/client.h"
#include "serve/local_cluster.h"
#include "tests/support/temp_dir.h"

namespace strata::test {

struct HarnessOptions {
  std::string model = "llama.gguf";  // in tests/data/models
  uint32_t workers = 2;
  bool without_files = false;  // workers get their tensors from the coordinator
  std::vector<std::string> coordinator_arguments = {};
};

struct RunResult {
  std::string text;
  std::vector<int32_t> tokens;
  Status status;
  std::string reason;
};

class ClusterHarness {
 public:
  explicit ClusterHarness(const HarnessOptions& options);
  ~ClusterHarness();

  // Starts the coordinator and waits for its address.
  void start_coordinator();
  serve::ChildProcess& start_worker(const std::string& name,
                                    const std::vector<std::string>& arguments = {});
  void start_all();
  // Waits for the state ("ready", "degraded", ...). False after 30 s.
  bool wait_state(const std::string& state);
  remote::ClusterStatus status();

  std::unique_ptr<coordinator::Client> client();
  // A greedy answer; `on_token` is called with the number of tokens so far.
  RunResult run(const std::string& prompt, uint32_t max_tokens,
                const std::function<void(size_t)>& on_token = {});

  serve::ChildProcess& coordinator() { return *coordinator_; }
  serve::ChildProcess& worker(size_t index) { return *workers_[index]; }
  size_t worker_count() const { return workers_.size(); }
  const std::string& address() const { return address_; }
  const std::string& token() const { return token_; }
  std::string state_folder() const { return folder_.path() + "/state"; }
  // What all processes wrote, for a failed test's message.
  std::string logs() const;

 private:
  HarnessOptions options_;
  TempDir folder_;
  std::string token_;
  std::string address_;
  std::unique_ptr<serve::ChildProcess> coordinator_;
  std::vector<std::unique_ptr<serve::ChildProcess>> workers_;
};

// The binary under test, and a model of tests/data.
std::string strata_binary();
std::string model_path(const std::string& name);
// Runs `strata` to its end and gives what it printed on standard output and error together.
std::string run_strata(const std::vector<std::string>& arguments, std::string& end_text);

}  // namespace strata::test
