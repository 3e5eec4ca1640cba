// LocalCluster: a coordinator in this process and worker processes of the same binary on loopback,
// for `bench --workers`, `eval --workers` and tests.
//
// Ports are ephemeral, the token is random and travels by environment. Workers are killed by the
// kernel when this process ends in whatever way, and waited for when the object goes.
//
// Threads: the main thread (a worker lives as long as the thread that started it).
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/file_descriptor.h"
#include "serve/serving.h"

namespace strata::serve {

// A process of this binary. Its standard error is kept in memory.
class ChildProcess {
 public:
  // Starts `binary` with the arguments and, beside this process's environment, `environment`
  // ("NAME=value"). Errors: those of the system.
  static Result<std::unique_ptr<ChildProcess>> start(const std::string& binary,
                                                     const std::vector<std::string>& arguments,
                                                     const std::vector<std::string>& environment);
  // Kills it if it still runs, and waits for it.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // True if it still runs.
  bool is_running();
  // Asks it to end (SIGTERM), and kills it if it has not within `grace`.
  void stop(Duration grace);
  void signal(int number);
  // "exit code 1" or "signal 9"; empty while it runs.
  std::string end_text();
  // The last lines that it wrote to standard error.
  std::string last_lines(size_t bytes_max = 2000) const;
  // Peak resident memory so far; 0 once it has ended.
  uint64_t peak_rss_bytes() const;

 private:
  ChildProcess() = default;
  pid_t pid_ = -1;
  FileDescriptor log_;
  bool ended_ = false;
  int wait_status_ = 0;
};

struct LocalClusterOptions {
  ServingOptions serving;
  uint32_t workers = 1;
  int threads = 0;                              // of each worker; 0: its own choice
  std::string pin = "auto";                     // of each worker; auto: only a single one
  std::string isa;                              // of each worker; empty: the best
  std::string binary;                           // empty: this program
  bool skip_probe = false;                      // workers count as equal, and start quicker
  Duration timeout = std::chrono::minutes(10);  // until it is ready
  // In place of the engine, if `started` is set; see CoordinatorOptions.
  coordinator::CoordinatorOptions::PipelineUser pipeline_user = {};
};

class LocalCluster {
 public:
  // Returns once the coordinator listens and the workers are started.
  static Result<std::unique_ptr<LocalCluster>> start(const LocalClusterOptions& options,
                                                     ProgressDisplay& display,
                                                     std::stop_token stop);
  ~LocalCluster();

  // Waits until the pipeline stands. Errors: what a worker said that ended; CANCELLED once told to
  // stop; DEADLINE_EXCEEDED with what is missing.
  Status wait_ready(const std::stop_token& stop);

  coordinator::Coordinator& coordinator() { return *coordinator_; }
  std::vector<std::unique_ptr<ChildProcess>>& workers() { return workers_; }

 private:
  explicit LocalCluster(const LocalClusterOptions& options) : options_(options) {}

  LocalClusterOptions options_;
  std::unique_ptr<coordinator::Coordinator> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> workers_;
};

}  // namespace strata::serve
