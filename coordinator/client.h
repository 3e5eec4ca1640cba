// Client: what `strata run --coordinator`, `chat` and `ps` ask of a coordinator.
//
// Threads: any; each call blocks its caller.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "backends/remote/channel.h"
#include "backends/remote/client_records.h"
#include "runtime/base/status.h"

namespace strata::coordinator {

class Client {
 public:
  // Errors: UNAVAILABLE "cannot reach the coordinator at ..."; CANCELLED once told to stop.
  static Result<std::unique_ptr<Client>> connect(const remote::Address& address,
                                                 const std::string& token,
                                                 std::chrono::milliseconds timeout,
                                                 std::stop_token stop = {});
  virtual ~Client() = default;

  // Streams one answer; `event` is called for each event. Ends early, with CANCELLED, once told to
  // stop. Errors: those of the answer; UNAVAILABLE if the connection broke.
  virtual Status generate(const remote::GenerateRequest& request,
                          const std::function<void(const remote::GenerateEvent&)>& event,
                          std::stop_token stop = {}) = 0;
  virtual Result<remote::ClusterStatus> status(std::stop_token stop = {}) = 0;
  // Has the model placed anew, if that changes anything; a sentence that says what is done.
  virtual Result<std::string> replan(std::stop_token stop = {}) = 0;
};

}  // namespace strata::coordinator
