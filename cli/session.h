// Session: where `run` and `chat` get their answers, from a coordinator or from a model in this
// process. Either way the same engine does the work.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "backends/remote/client_records.h"
#include "cli/cluster_options.h"
#include "cli/model_options.h"
#include "cli/terminal.h"

namespace strata::cli {

struct SessionOptions {
  ClusterAddressOptions cluster;
  uint32_t wait_s = 60;  // for a cluster that is forming, or placing its model anew
  serve::ModelOptions model;
  uint32_t context = 0;  // 0: what the model was trained for, at most serve::kDefaultContext
};

// -m and what goes with it, or --coordinator.
void add_session_options(CLI::App& command, SessionOptions& options);

// Errors: INVALID_ARGUMENT for neither or both of model and coordinator, and for options whose
// text means nothing.
Status check_session_options(const SessionOptions& options);

// Threads: generate() from one thread.
class Session {
 public:
  // Loads the model, or waits until the cluster is ready. Errors: CANCELLED once told to stop.
  // Requires: check_session_options() passed.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options, Terminal& terminal,
                                               std::stop_token stop);
  virtual ~Session() = default;

  // As Client::generate(): blocks until the answer has ended, or was told to stop.
  virtual Status generate(const remote::GenerateRequest& request,
                          const std::function<void(const remote::GenerateEvent&)>& event,
                          std::stop_token stop) = 0;
};

}  // namespace strata::cli
