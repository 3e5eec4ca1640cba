// Coordinator: wires engine, cluster state and network together, and keeps them going.
//
//   workers --Join--> ClusterService --events--> [control thread: ClusterState] --commands-->
//   workers clients --Generate--> ClusterService --> Generator --> [engine thread: Engine]
//   --steps--> head tail --results--> PipelineReceiver --> [engine thread]
//
// Three threads of its own: control (membership, plans, loads), engine (steps) and intake (checks
// and tokenizes requests); gRPC's only enqueue. Losing a worker ends the requests that it served
// and nothing else; the control thread then builds the next pipeline.
//
// Threads: public members from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/remote/channel.h"
#include "backends/remote/client_records.h"
#include "coordinator/cluster_state.h"
#include "coordinator/generator.h"
#include "runtime/base/clock.h"
#include "runtime/gguf/gguf_file.h"

namespace strata::coordinator {

struct CoordinatorOptions {
  std::shared_ptr<const GgufFile> file;
  std::string model_digest;  // "sha256:..."
  // One for each of the file's tensors, to serve them to workers that have no file. Empty: workers
  // need files of their own.
  std::vector<std::string> tensor_digests;
  std::string token;
  remote::Address listen;
  bool insecure_network = false;
  // Keeps the cluster's id and epoch over restarts (state_folder.h). Empty: a new cluster each
  // time.
  std::string state_folder;
  // Profile, plan, KV type and so on; `cluster_id`, `last_epoch` and `model` are set here.
  ClusterOptions cluster;
  EngineLimits engine;
  // For answers whose request gives none: from the request to its last token. 0: no limit.
  Duration request_timeout = std::chrono::hours(1);
  uint32_t prefill_chunk = 0;
  // Lines for people, from the control thread. May be empty.
  std::function<void(const Note&)> on_note;
  // Uses each pipeline as it stands in place of the engine, if `started` is set: steps go straight
  // to the head, results to `sink`. For `eval`, whose steps are its own.
  struct PipelineUser {
    std::function<void(const PipelineShape&, std::shared_ptr<StepSink> head)> started;
    std::function<void(const Status& why)> stopped;
    ResultSink* sink = nullptr;  // not owned
  };
  PipelineUser pipeline_user;
};

class Coordinator {
 public:
  // Listens from now on. Errors: those of RpcServer::start, Generator::create and
  // StateFolder::open.
  static Result<std::unique_ptr<Coordinator>> start(CoordinatorOptions options);
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  const remote::Address& address() const;
  // Waits until a pipeline stands. False after `timeout`, or once stop() was called; `obstacle`
  // then says what is missing.
  bool wait_ready(Duration timeout);
  // Why there is no pipeline; OK if there is one.
  Status obstacle() const;
  remote::ClusterStatus status() const;

  Generator& generator();
  EngineLoop& engine();

  // Ends answers, streams and threads; workers stay up and may join another coordinator here. Any
  // number of times.
  void stop();

 private:
  struct Impl;
  explicit Coordinator(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::coordinator
