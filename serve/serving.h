// A model that is served by a cluster: its options, and a coordinator made from them.
//
// Threads: the main thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "coordinator/coordinator.h"
#include "serve/progress.h"

namespace strata::serve {

struct ServingOptions {
  std::string model_path;
  uint32_t workers = 0;    // 0: plans once those that have joined suffice
  uint32_t context = 0;    // 0: the model's, up to kDefaultContext
  uint32_t sequences = 4;  // whole contexts that the KV cache should hold, if memory allows
  uint32_t slots = 16;     // sequences that are live at once
  uint32_t step_tokens = 512;
  uint32_t prefill_chunk = 0;
  std::string kv_type = "f16";
  std::optional<std::string> split;       // as parse_split() takes it
  std::string plan_for = "one";           // or "many", see PlanGoal
  std::vector<std::string> exclude = {};  // names of workers that get no stage
  uint32_t queue = 256;
  uint32_t step_timeout_s = 0;        // 0: by what the plan predicts
  uint32_t request_timeout_s = 3600;  // for requests that name none; 0: no limit
  uint32_t max_outputs = 0;           // see ClusterOptions
  bool ignore_windows = false;        // see PlanOptions
  std::string digest_folder = {};     // where digests of files are kept; empty: nowhere
  bool is_quiet = false;              // only warnings are shown
  std::function<void(const coordinator::Note&)> on_note = {};  // in place of the display
};

// Errors: INVALID_ARGUMENT for options whose text means nothing.
Status check_serving_options(const ServingOptions& options);

// The model's profile for the planner, and the planner's options. Errors: those of the file and of
// the options' values.
struct PlanInput {
  std::shared_ptr<const GgufFile> file;
  coordinator::ModelProfile profile;
  coordinator::PlanOptions plan;
};
Result<PlanInput> plan_input(const ServingOptions& options);

struct ListenOptions {
  remote::Address listen;
  bool insecure_network = false;
  std::string token;
  std::string state_folder = {};  // see CoordinatorOptions
  coordinator::CoordinatorOptions::PipelineUser pipeline_user = {};
};
// Digests the model, with progress, and listens. Told to stop, it ends with CANCELLED.
Result<std::unique_ptr<coordinator::Coordinator>> start_coordinator(const ServingOptions& options,
                                                                    const ListenOptions& listen,
                                                                    ProgressDisplay& display,
                                                                    std::stop_token stop);

}  // namespace strata::serve
