// ClusterService: the gRPC edge of the coordinator, proto/strata/v1/cluster.proto's Cluster.
//
// Checks tokens, turns messages into records and hands them to a handler; writes what it is given.
// It decides nothing. Reactors only enqueue: the handler's calls must not block.
//
//   Join       one stream for each worker, named by a MemberId
//   Generate   one stream for each answer; a slow reader has a bounded queue, then is cut off: with
//              RESOURCE_EXHAUSTED if it reads on, by the stream's end if it does not
//   Status     the handler's snapshot
//   Replan     what the handler does about it
//   Ping       nothing, at once
//
// This header includes no gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backends/remote/client_records.h"
#include "backends/remote/cluster_records.h"
#include "coordinator/generator.h"
#include "coordinator/membership.h"

namespace grpc {
class Service;
}

namespace strata::coordinator {

// Called once, with a sentence that says what is done. From any thread.
using ReplanListener = std::function<void(const std::string& text)>;

// Called from gRPC's threads.
class ClusterHandler {
 public:
  virtual ~ClusterHandler() = default;
  // A worker's first message. `grpc_peer`: where its stream comes from, "ipv4:10.0.0.2:4711".
  virtual void on_hello(MemberId id, remote::Hello hello, const std::string& grpc_peer) = 0;
  virtual void on_message(MemberId id, remote::FromWorker message) = 0;
  // Once for each stream that said hello.
  virtual void on_stream_end(MemberId id, const Status& why) = 0;
  // As Generator.
  virtual RequestId on_generate(remote::GenerateRequest request, AnswerListener listener) = 0;
  virtual void on_cancel(RequestId id) = 0;
  virtual remote::ClusterStatus on_status() = 0;
  virtual void on_replan(ReplanListener listener) = 0;
};

// Threads: any.
class ClusterService {
 public:
  static std::unique_ptr<ClusterService> create(std::string token, ClusterHandler& handler);
  virtual ~ClusterService() = default;

  // For RpcServer, which must be shut down before this is destroyed.
  virtual grpc::Service& service() = 0;
  // Queues a message to a worker; nothing happens if its stream has ended. A worker that takes
  // nothing any more loses its stream.
  virtual void send(MemberId id, const remote::ToWorker& message) = 0;
  // Ends a worker's stream, after what was queued before.
  virtual void end(MemberId id, const Status& why) = 0;
  // Ends all streams and answers with `why`, so that the server can shut down.
  virtual void end_all(const Status& why) = 0;
};

}  // namespace strata::coordinator
