// A stage on another node, seen from here, and the ends of the streams between stages.
//
//   coordinator --RemoteStage--> head --RemoteStage--> ... --RemoteStage--> tail
//   tail --RemoteResults--> head (if it is another node), tail --RemoteResults--> coordinator
//   every node: PipelineReceiver behind its RpcServer, for what others send.
//
// The coordinator opens its RemoteStage to the head; workers open theirs when they are told to
// start an epoch. A lost connection is reported once, by a Status that names the peer, at most a
// moment after it broke; what is submitted afterwards is dropped.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "backends/remote/activation_stream.h"
#include "runtime/base/status.h"
#include "runtime/model/step.h"

namespace strata::remote {

struct RemoteOptions {
  Address address;
  std::string peer;    // the other node's name
  std::string caller;  // this node's name
  std::string token;
  std::string cluster_id = {};  // whose plan this is; empty: not said
  uint64_t epoch = 0;           // of the plan
  std::string stream_key = {};  // of the epoch, see stream_gate.h
  std::chrono::milliseconds connect_timeout{5000};
  std::stop_token stop = {};  // ends a connect() that waits
};

// Called once, from a thread of the stream, when the peer is lost. Must not destroy the object.
using PeerLostCallback = std::function<void(const Status&)>;

// Sends steps to a stage on another node. Threads: as StepSink.
class RemoteStage final : public StepSink {
 public:
  // Errors: UNAVAILABLE "cannot reach worker ...", UNAUTHENTICATED.
  static Result<std::unique_ptr<RemoteStage>> connect(const RemoteOptions& options,
                                                      PeerLostCallback lost);
  ~RemoteStage() override;

  // Requires: activations.size() is a multiple of live_tokens(). A frame that cannot be sent is
  // reported through `lost`.
  void submit(StepFrame frame) override;

 private:
  RemoteStage(std::unique_ptr<OutgoingStream> stream, PeerLostCallback lost);
  std::unique_ptr<OutgoingStream> stream_;
  PeerLostCallback lost_;
};

// Sends results to the head or to the coordinator. Threads: as ResultSink.
class RemoteResults final : public ResultSink {
 public:
  static Result<std::unique_ptr<RemoteResults>> connect(const RemoteOptions& options,
                                                        PeerLostCallback lost);
  ~RemoteResults() override;
  void deliver(StepResult result) override;

 private:
  RemoteResults(std::unique_ptr<OutgoingStream> stream, PeerLostCallback lost);
  std::unique_ptr<OutgoingStream> stream_;
  PeerLostCallback lost_;
};

// FAILED_PRECONDITION "fenced: epoch 3 < 4" for a message of an old epoch, and one that says so for
// an epoch that this node has not been told of.
Status check_epoch(uint64_t message_epoch, uint64_t current_epoch);

// What a node does with steps and results of others. Called from one thread; enqueue, never
// compute. Records are well-formed (wire.h has checked them), but whether slots, blocks, epoch and
// n_embd make sense is the handler's to check.
class PipelineHandler {
 public:
  virtual ~PipelineHandler() = default;
  // A stream of another node is to begin; an error refuses it (stream_gate.h).
  virtual Status on_stream_open(const StreamCaller& caller) = 0;
  // The first of a large frame's pieces has come: an error ends the stream before the rest does.
  virtual Status on_large_frame(const StreamCaller& caller, uint64_t step) = 0;
  // An error ends the sender's stream and tells it why.
  virtual Status on_step(const std::string& from, StepFrame frame) = 0;
  virtual Status on_result(const std::string& from, StepResult result) = 0;
  // The stream ended, in order (ok) or not.
  virtual void on_stream_closed(const StreamCaller& caller, const Status& why) = 0;
};

// Decodes incoming frames for a PipelineHandler. Usage: construct, start an RpcServer with
// `streams = receiver.acceptor()`, shut the server down, destroy.
class PipelineReceiver final : private StreamHandler {
 public:
  PipelineReceiver(std::string token, PipelineHandler& handler);
  ~PipelineReceiver() override;
  StreamAcceptor* acceptor() { return acceptor_.get(); }
  // As StreamAcceptor.
  void expect_cluster(const std::string& cluster_id) { acceptor_->expect_cluster(cluster_id); }

 private:
  Status on_open(const StreamCaller& caller) override;
  Status on_first_piece(const StreamCaller& caller, uint64_t epoch, uint64_t step) override;
  Status on_frame(const StreamCaller& caller, Frame frame) override;
  void on_closed(const StreamCaller& caller, const Status& why) override;

  PipelineHandler& handler_;
  std::unique_ptr<StreamAcceptor> acceptor_;
};

}  // namespace strata::remote
