// CoordinatorLink: this worker's end of the Join stream.
//
// One stream for the whole membership. Two threads: the caller's reads commands, the control thread
// writes heartbeats and what is queued with send(), so that nobody who reports something waits for
// the network. A frozen coordinator is noticed by keepalive, a dead one at once.
//
// This header includes no gRPC.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "backends/remote/channel.h"
#include "backends/remote/cluster_records.h"

namespace strata::worker {

struct LinkOptions {
  remote::Address coordinator;
  std::string token;
  std::string name;                                 // this worker's
  std::chrono::milliseconds connect_timeout{5000};  // also for the welcome
  std::stop_token stop;                             // ends a join() that waits
  // Asked by the control thread every Welcome::heartbeat_ms.
  std::function<remote::Heartbeat()> heartbeat;
};

class CoordinatorLink {
 public:
  // Joins, and returns when the coordinator has welcomed or refused this worker. Errors:
  // UNAVAILABLE if it cannot be reached; what it refused with: UNAUTHENTICATED,
  // FAILED_PRECONDITION (version), ALREADY_EXISTS (name), INVALID_ARGUMENT.
  // `hello` is asked once the coordinator can be reached; its hop_us is measured here.
  static Result<std::unique_ptr<CoordinatorLink>> join(const LinkOptions& options,
                                                       const std::function<remote::Hello()>& hello);
  virtual ~CoordinatorLink() = default;

  virtual const remote::Welcome& welcome() const = 0;
  // Reads commands until the stream ends; why it did, ok after leave().
  virtual Status run(const std::function<void(remote::ToWorker)>& on_command) = 0;
  // Queues a message. Threads: any. Dropped once the stream has ended.
  virtual void send(const remote::FromWorker& message) = 0;
  // Says goodbye and ends the stream: run() returns soon. Threads: any.
  virtual void leave(const std::string& reason) = 0;
};

}  // namespace strata::worker
