// StageHost: carries out what the coordinator says about this worker's stage.
//
//   command() -> queue -> loader thread: load_stage, start_epoch, unload -> emit(CommandDone)
//
//   nothing --load_stage--> loaded --start_epoch--> running
//
// A command of a newer epoch, a coordinator that is gone, or stop() cancels a load that is under
// way. Weights outlive the stage: a load of the same layers of the same model in a later epoch
// reads nothing. The stage's layers go to all devices of the node as they fit; what they need there
// is counted, device by device, and compared with what the worker may use before anything is
// loaded. A load that failed leaves nothing that an epoch could start with.
//
// No gRPC here. Threads: public members from any thread; emit from the loader's and streams'.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "backends/remote/cluster_records.h"
#include "backends/remote/remote_stage.h"
#include "backends/remote/weights_client.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/device/registry.h"
#include "runtime/model/stage_model.h"
#include "worker/step_service.h"
#include "worker/weight_store.h"

namespace strata::worker {

struct StageHostOptions {
  std::string name;  // the worker's
  uint32_t threads = 1;
  std::vector<int> cpus = {};  // of these threads, as BackendOptions has them
  uint64_t memory_limit_bytes = 0;
  bool insecure_network = false;
  const DeviceRegistry* devices = nullptr;  // not owned
  WeightStore* store = nullptr;             // not owned
  // To the coordinator. Must not block.
  std::function<void(remote::FromWorker)> emit;
};

class StageHost {
 public:
  // Errors: RESOURCE_EXHAUSTED without a thread to load on.
  static Result<std::unique_ptr<StageHost>> create(StageHostOptions options);
  ~StageHost();
  StageHost(const StageHost&) = delete;
  StageHost& operator=(const StageHost&) = delete;

  // For PipelineReceiver.
  remote::PipelineHandler& handler() { return steps_; }

  // A coordinator has welcomed this worker: results and weights go over this address.
  void begin_session(const remote::Address& coordinator, const std::string& token,
                     const std::string& cluster_id);
  // The coordinator is gone: ends the stage and what is being loaded, keeps the weights.
  void end_session();
  // True once nothing of an earlier session runs any more: a stage ends with the step that it
  // computes, which a stage that hangs never does. False after `timeout` or stop().
  bool wait_ended(Duration timeout);
  // Queues a LoadStage, StartEpoch or Unload; answered by CommandDone.
  void command(uint64_t command_id, remote::Command command);
  // Ends everything; the loader thread is gone afterwards.
  void stop();

  remote::Heartbeat heartbeat() const;
  // The model and range whose weights are held; an empty digest for none.
  std::pair<std::string, LayerRange> held() const;
  uint64_t last_epoch() const;

 private:
  explicit StageHost(StageHostOptions options);

  struct Job {
    uint64_t command_id = 0;
    remote::Command command;
  };
  struct Session {
    remote::Address coordinator;
    std::string token;
    std::string cluster_id;
    std::unique_ptr<remote::WeightsClient> weights;
  };
  // Weights, kept from one load to the next. The loader thread's.
  struct Held {
    std::string digest;
    LayerRange range;
    std::shared_ptr<const GgufFile> file;
    std::shared_ptr<Weights> weights;
    std::vector<Device*> layer_devices;
    Device* head_device = nullptr;
    std::vector<uint64_t> device_bytes;  // of the weights, by device
  };
  // A load that succeeded. The loader thread's.
  struct Ready {
    StageOptions options;
    std::unique_ptr<StageModel> model;  // until an epoch starts with it
    std::string stream_key;             // of the load's epoch
  };

  void run() noexcept;
  remote::CommandDone carry_out(const Job& job, const std::stop_token& stop);
  Status load(const remote::LoadStage& order, const std::stop_token& stop,
              remote::StageMemory& memory);
  Result<StageOptions> load_weights(const remote::LoadStage& order, const Session& session,
                                    const std::stop_token& stop);
  void drop_ready();
  void drop_weights();
  // Chooses devices for the stage, or keeps those of the weights that are held, and counts.
  Result<StageOptions> place(const remote::LoadStage& order, const GgufFile& file,
                             const Held* held) const;
  std::vector<DeviceMemory> usable_memory(const Held* held) const;
  Status start(const remote::StartEpoch& order, const std::stop_token& stop);
  Status open_streams(const remote::StartEpoch& order, const std::stop_token& stop,
                      RunningStage& running);
  void end_stage(uint64_t epoch);
  Result<StageOptions> stage_options(const remote::LoadStage& order, const GgufFile& file) const;
  std::shared_ptr<Session> session() const;
  remote::PeerLostCallback lost_callback(uint64_t epoch, std::string peer) const;

  const StageHostOptions options_;
  StepService steps_;
  std::optional<Held> held_;    // the loader thread's
  std::optional<Ready> ready_;  // the loader thread's

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Job> jobs_ STRATA_GUARDED_BY(mutex_);
  std::shared_ptr<Session> session_ STRATA_GUARDED_BY(mutex_);
  bool end_wanted_ STRATA_GUARDED_BY(mutex_) = false;  // end_session() was called
  bool working_ STRATA_GUARDED_BY(mutex_) = false;     // the loader thread has a job or ends one
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::stop_source current_ STRATA_GUARDED_BY(mutex_);  // of the job that runs
  uint64_t last_epoch_ STRATA_GUARDED_BY(mutex_) = 0;
  std::optional<remote::LoadProgress> progress_ STRATA_GUARDED_BY(mutex_);
  uint64_t used_bytes_ STRATA_GUARDED_BY(mutex_) = 0;
  uint64_t steps_before_ STRATA_GUARDED_BY(mutex_) = 0;  // of earlier epochs
  // The stage that is being ended, which takes until its step is done: heartbeats tell of it.
  std::shared_ptr<RunningStage> ending_ STRATA_GUARDED_BY(mutex_);
  std::string held_digest_ STRATA_GUARDED_BY(mutex_);
  LayerRange held_range_ STRATA_GUARDED_BY(mutex_);

  std::thread loader_;
};

}  // namespace strata::worker
