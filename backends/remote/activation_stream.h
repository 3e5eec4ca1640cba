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
  uint64_t epoch = 0;      // of that plan
  std::string key;         // the epoch's, which proves that it does
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

// Who opens a stream, as its metadata says. The token and the cluster were right.
struct StreamCaller {
  StreamMethod method = StreamMethod::steps;
  std::string name;  // of the node
  uint64_t epoch = 0;
  std::string key;
};

// What a node does with incoming frames. Called from the acceptor's thread: enqueue, never compute.
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  // A stream is to begin. An error refuses it, and nothing more is heard of it.
  virtual Status on_open(const StreamCaller& caller) = 0;
  // The first piece of a frame of several has come: whether the rest is worth its memory.
  virtual Status on_first_piece(const StreamCaller& caller, uint64_t epoch, uint64_t step) = 0;
  // An error ends the stream; the sender gets it.
  virtual Status on_frame(const StreamCaller& caller, Frame frame) = 0;
  // The stream has ended: ok if the caller ended it in order.
  virtual void on_closed(const StreamCaller& caller, const Status& why) = 0;
};

// What callers may cost a node, all of them together.
struct StreamLimits {
  // Of frames whose last piece has not come: the largest frame that there may be, once. (A stage
  // sends one at a time, and few of a plan's streams carry large ones.)
  uint64_t unfinished_bytes_max = kRowsBytesMax + 2 * kRecordBytesMax;
  // How long the next piece of a frame may take: 2 MiB over a poor line.
  std::chrono::milliseconds piece_timeout{30'000};
};

// The receiving end of all of a node's streams. Give it to RpcServer, which must be shut down
// before this is destroyed.
class StreamAcceptor {
 public:
  static std::unique_ptr<StreamAcceptor> create(std::string token, StreamHandler& handler,
                                                const StreamLimits& limits = {});
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
