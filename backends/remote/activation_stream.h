// One long-lived stream of frames between two nodes, in one direction.
//
// gRPC's completion-queue API with raw byte buffers on both sides: measured twice as quick per
// message as callbacks on gRPC 1.51, and free of copies on the sending side (header and body are
// separate slices that refer to the frame). No thread polls: each stream and each acceptor has one
// thread that sleeps in its completion queue.
//
//   submit -> queue -> [stream's thread] Write ... network ... [acceptor's thread] Read -> handler
//
// A small frame that nothing waits before skips the queue's thread: the caller writes it and takes
// the end of that write, so that in the steady state of decoding a frame wakes the receiver's two
// threads (the acceptor's, the stage's) and, after the fact, the sender's for the window.
//
// The receiver answers with nothing but the status that ends the stream, so that a sender learns in
// words why it was refused. A closed connection is noticed at once, a silent one by keepalive.
//
// This header includes no gRPC.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>

#include "backends/remote/channel.h"
#include "backends/remote/frame.h"
#include "runtime/base/status.h"

namespace grpc {
class ServerBuilder;
}

namespace strata::remote {

// The two raw methods of proto/strata/v1/stage.proto.
enum class StreamMethod { steps, results };

struct StreamOptions {
  Address address;
  std::string peer;    // the other node's name, for messages
  std::string caller;  // this node's name, for the other's messages
  std::string token;
  std::string cluster_id;  // whose plan this stream belongs to
  StreamMethod method = StreamMethod::steps;
  // Frames that may wait to be written. The coordinator bounds the steps in flight far below, so
  // a full queue means that the peer takes nothing any more.
  size_t queue_frames_max = 256;
  std::chrono::milliseconds connect_timeout{5000};
  std::stop_token stop;  // ends an open() that waits for the connection
};

// The sending end. Threads: send() from any one thread at a time; the rest from the owner.
class OutgoingStream {
 public:
  // Called once, from the stream's thread, when the stream ends other than by its destructor:
  // UNAVAILABLE "lost <peer> at <address>: ..." or the status that the peer gave. Must not destroy
  // the stream.
  using Closed = std::function<void(const Status&)>;

  // Connects, and returns once the peer has accepted the stream. Errors: UNAVAILABLE naming the
  // peer; what the peer refused with (UNAUTHENTICATED, FAILED_PRECONDITION for another cluster's).
  static Result<std::unique_ptr<OutgoingStream>> open(const StreamOptions& options, Closed closed);
  virtual ~OutgoingStream() = default;

  // Queues the frame and returns; never blocks. Small frames are written from the calling thread
  // if nothing waits before them (a hand-over to another thread costs more than the write).
  // Errors: INVALID_ARGUMENT (check_frame); UNAVAILABLE if the stream has ended or the queue is
  // full.
  virtual Status send(Frame frame) = 0;
};

// What a node does with incoming frames. Called from the acceptor's thread: enqueue, never compute.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // An error ends the stream; the sender gets it.
  virtual Status on_frame(StreamMethod method, const std::string& caller, Frame frame) = 0;
  // The stream of `caller` has ended: ok if the caller ended it in order.
  virtual void on_closed(StreamMethod method, const std::string& caller, const Status& why) = 0;
};

// The receiving end of all of a node's streams. Give it to RpcServer, which must be shut down
// before this is destroyed.
class StreamAcceptor {
 public:
  static std::unique_ptr<StreamAcceptor> create(std::string token, StreamHandler& handler);
  virtual ~StreamAcceptor() = default;

  // Streams of other clusters are refused from now on; empty: none are. Threads: any.
  virtual void expect_cluster(const std::string& cluster_id) = 0;

  // For RpcServer, in this order.
  virtual void register_with(grpc::ServerBuilder& builder) = 0;
  // Errors: RESOURCE_EXHAUSTED without a thread.
  virtual Status start() = 0;
  // After the server's shutdown: waits until no handler call is running or to come. That takes
  // moments; if it takes 10 s, a handler call hangs, and the process ends with a line that says so.
  virtual void stop() = 0;
};

}  // namespace strata::remote
