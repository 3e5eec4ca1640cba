#include "backends/remote/remote_stage.h"

#include <fmt/format.h>

#include <atomic>

#include "backends/remote/wire.h"

namespace strata::remote {
namespace {

// `lost`, at most once, whichever way the loss is noticed.
PeerLostCallback once(PeerLostCallback lost) {
  return [lost = std::move(lost),
          told = std::make_shared<std::atomic<bool>>(false)](const Status& status) {
    if (!told->exchange(true) && lost) lost(status);
  };
}

StreamOptions stream_options(const RemoteOptions& options, StreamMethod method) {
  StreamOptions stream;
  stream.address = options.address;
  stream.peer = options.peer;
  stream.caller = options.caller;
  stream.token = options.token;
  stream.method = method;
  stream.connect_timeout = options.connect_timeout;
  stream.cluster_id = options.cluster_id;
  stream.epoch = options.epoch;
  stream.key = options.stream_key;
  stream.stop = options.stop;
  return stream;
}

}  // namespace

RemoteStage::RemoteStage(std::unique_ptr<OutgoingStream> stream, PeerLostCallback lost)
    : stream_(std::move(stream)), lost_(std::move(lost)) {}
RemoteStage::~RemoteStage() = default;

Result<std::unique_ptr<RemoteStage>> RemoteStage::connect(const RemoteOptions& options,
                                                          PeerLostCallback lost) {
  PeerLostCallback told = once(std::move(lost));
  auto stream = TRY(OutgoingStream::open(stream_options(options, StreamMethod::steps), told));
  return std::unique_ptr<RemoteStage>(new RemoteStage(std::move(stream), std::move(told)));
}

void RemoteStage::submit(StepFrame frame) {
  Result<Frame> wire_frame = to_frame(std::move(frame));
  const Status sent =
      wire_frame.ok() ? stream_->send(std::move(wire_frame).value()) : wire_frame.status();
  if (!sent.ok()) lost_(sent);
}

RemoteResults::RemoteResults(std::unique_ptr<OutgoingStream> stream, PeerLostCallback lost)
    : stream_(std::move(stream)), lost_(std::move(lost)) {}
RemoteResults::~RemoteResults() = default;

Result<std::unique_ptr<RemoteResults>> RemoteResults::connect(const RemoteOptions& options,
                                                              PeerLostCallback lost) {
  PeerLostCallback told = once(std::move(lost));
  auto stream = TRY(OutgoingStream::open(stream_options(options, StreamMethod::results), told));
  return std::unique_ptr<RemoteResults>(new RemoteResults(std::move(stream), std::move(told)));
}

void RemoteResults::deliver(StepResult result) {
  Result<Frame> wire_frame = to_frame(std::move(result));
  const Status sent =
      wire_frame.ok() ? stream_->send(std::move(wire_frame).value()) : wire_frame.status();
  if (!sent.ok()) lost_(sent);
}

Status check_epoch(uint64_t message_epoch, uint64_t current_epoch) {
  if (message_epoch < current_epoch) {
    return failed_precondition(fmt::format("fenced: epoch {} < {}", message_epoch, current_epoch));
  }
  if (message_epoch > current_epoch) {
    return failed_precondition(fmt::format("epoch {} has not begun here: this node is in epoch {}",
                                           message_epoch, current_epoch));
  }
  return ok_status();
}

PipelineReceiver::PipelineReceiver(std::string token, PipelineHandler& handler)
    : handler_(handler), acceptor_(StreamAcceptor::create(std::move(token), *this)) {}
PipelineReceiver::~PipelineReceiver() = default;

Status PipelineReceiver::on_open(const StreamCaller& caller) {
  return handler_.on_stream_open(caller);
}

// A stream is of one epoch. Steps come in order on a stream of their own, which the handler checks.
Status PipelineReceiver::on_first_piece(const StreamCaller& caller, uint64_t epoch, uint64_t step) {
  TRY(check_epoch(epoch, caller.epoch));
  return handler_.on_large_frame(caller, step);
}

Status PipelineReceiver::on_frame(const StreamCaller& caller, Frame frame) {
  TRY(check_epoch(frame.epoch, caller.epoch));
  if (caller.method == StreamMethod::steps) {
    return handler_.on_step(caller.name, TRY(step_from_frame(std::move(frame))));
  }
  return handler_.on_result(caller.name, TRY(result_from_frame(std::move(frame))));
}

void PipelineReceiver::on_closed(const StreamCaller& caller, const Status& why) {
  handler_.on_stream_closed(caller, why);
}

}  // namespace strata::remote
