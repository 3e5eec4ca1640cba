// LocalEngine: engine, generator and a pipeline of local stages, all in this process.
//
// Threads: as its parts.
#pragma once

#include <cstdint>
#include <memory>
#include <stop_token>

#include "backends/remote/client_records.h"
#include "coordinator/engine/engine_loop.h"
#include "coordinator/generator.h"
#include "coordinator/planner/planner.h"
#include "coordinator/token_rate.h"
#include "runtime/base/mutex.h"
#include "serve/model_options.h"
#include "serve/progress.h"
#include "worker/local_pipeline.h"

namespace strata::serve {

// What is served of a model that was trained for more, unless asked for.
inline constexpr uint32_t kDefaultContext = 4096;

struct LocalEngineOptions {
  ModelOptions model;
  uint32_t context = 0;    // 0: what the model was trained for, at most kDefaultContext
  uint32_t sequences = 1;  // live at once, each with a whole context
  uint32_t step_tokens = 512;
  uint32_t prefill_chunk = 0;
  uint32_t queue = 4096;       // requests that wait for a slot, at most
  Duration request_timeout{};  // for requests that name none; 0: no limit
};

class LocalEngine {
 public:
  // Loads the model and shows how far it is; told to stop, it ends with CANCELLED.
  // Errors: those of the file and the load; RESOURCE_EXHAUSTED if it does not fit this machine.
  static Result<std::unique_ptr<LocalEngine>> open(const LocalEngineOptions& options,
                                                   ProgressDisplay& display, std::stop_token stop);
  ~LocalEngine();

  coordinator::EngineLoop& engine() { return engine_; }
  coordinator::Generator& generator() { return *generator_; }
  uint32_t context() const { return shape_.context; }
  const std::shared_ptr<const GgufFile>& file() const { return file_; }
  // Layers of each stage, head first.
  std::vector<int32_t> split() const;
  const ThreadPins& pins() const { return pins_; }
  // The same for this process as a coordinator says of its cluster: one node for each stage.
  remote::ClusterStatus status() const;
  uint32_t stage_count() const { return static_cast<uint32_t>(pipeline_->stage_count()); }
  uint32_t vocab_size() const { return static_cast<uint32_t>(shape_.vocab_size); }

 private:
  explicit LocalEngine(uint32_t queue);
  Status load(const LocalEngineOptions& options, ProgressDisplay& display, std::stop_token stop);

  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<DeviceRegistry> devices_;
  coordinator::EngineLoop engine_;
  coordinator::PipelineShape shape_;
  std::shared_ptr<worker::LocalPipeline> pipeline_;
  std::vector<LayerRange> ranges_;
  ThreadPins pins_;
  std::unique_ptr<coordinator::Generator> generator_;
  mutable Mutex rate_mutex_;
  mutable coordinator::TokenRate rate_ STRATA_GUARDED_BY(rate_mutex_);
};

// The context to run with: as asked, else the model's own up to kDefaultContext. Errors:
// INVALID_ARGUMENT for one beyond what positions allow.
Result<uint32_t> choose_context(const Hparams& hparams, uint32_t asked);

}  // namespace strata::serve
