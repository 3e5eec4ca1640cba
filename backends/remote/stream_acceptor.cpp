// The receiving end of a node's streams; see activation_stream.h.
//
// One Call per stream and one that waits for the next, all on one completion queue and one thread.
// A tag is a pointer to one of the call's events. A call deletes itself when its last event is in.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <thread>

#include "backends/remote/activation_stream.h"
#include "backends/remote/stream_slices.h"
#include "backends/remote/wire.h"
#include "backends/remote/wire_fields.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"
#include "strata/v1/stage.grpc.pb.h"

namespace strata::remote {
namespace {

using RawService =
    v1::Stage::WithRawMethod_Steps<v1::Stage::WithRawMethod_Results<v1::Stage::Service>>;

class Call;

// gRPC ends what is under way at once after a server's shutdown, and handlers only enqueue.
constexpr std::chrono::seconds kStopMax{10};

enum class CallEvent { accepted, greeted, read, finished, done };

struct CallTag {
  Call* call = nullptr;
  CallEvent event = CallEvent::accepted;
};

// What the calls of one acceptor share.
struct Shared {
  explicit Shared(const StreamLimits& given)
      : limits(given), unfinished_budget(given.unfinished_bytes_max) {}

  const StreamLimits limits;
  // The acceptor's thread's: what frames that have begun hold, and the calls that have one.
  FrameBudget unfinished_budget;
  std::vector<Call*> unfinished;

  std::string token;
  StreamHandler* handler = nullptr;
  RawService service;
  std::unique_ptr<grpc::ServerCompletionQueue> events;

  Mutex cluster_mutex;
  std::string cluster_id STRATA_GUARDED_BY(cluster_mutex);

  // Calls that still expect an event. The queue must outlive them: gRPC aborts on an operation
  // that begins after a queue's shutdown.
  Mutex mutex;
  CondVar changed;
  int live_calls STRATA_GUARDED_BY(mutex) = 0;
};

class Call {
 public:
  // Waits for a stream of `method`. Owned by itself from here on.
  static void wait_for(Shared& shared, StreamMethod method) {
    auto* call = new Call(shared, method);
    call->context_.AsyncNotifyWhenDone(&call->tags_[4]);
    if (method == StreamMethod::steps) {
      shared.service.RequestSteps(&call->context_, &call->stream_, shared.events.get(),
                                  shared.events.get(), &call->tags_[0]);
    } else {
      shared.service.RequestResults(&call->context_, &call->stream_, shared.events.get(),
                                    shared.events.get(), &call->tags_[0]);
    }
  }

  void on_event(CallEvent event, bool ok) {
    switch (event) {
      case CallEvent::accepted:
        on_accepted(ok);
        return;
      case CallEvent::greeted:
        break;  // a failure shows in the read
      case CallEvent::read:
        on_read(ok);
        break;
      case CallEvent::finished:
        finished_ = true;
        finish_sent_ = ok;
        break;
      case CallEvent::done:
        done_ = true;
        break;
    }
    --pending_;
    if (pending_ == 0 && finished_ && done_) close();
  }

  // Of a call whose frame is unfinished: when its next piece has to be here.
  TimePoint piece_deadline() const { return piece_deadline_; }
  void on_piece_late() {
    finish(
        Status(StatusCode::deadline_exceeded,
               fmt::format("frame: step {}: part {} has not come within {} ms", assembler_.step(),
                           assembler_.parts_here(), shared_.limits.piece_timeout.count())));
  }

 private:
  Call(Shared& shared, StreamMethod method)
      : shared_(shared),
        method_(method),
        stream_(&context_),
        assembler_(method == StreamMethod::steps ? FrameKind::step : FrameKind::result,
                   &shared.unfinished_budget) {
    for (size_t i = 0; i < tags_.size(); ++i) tags_[i] = {this, static_cast<CallEvent>(i)};
    MutexLock lock(shared.mutex);
    ++shared.live_calls;
  }
  ~Call() {
    set_unfinished(false);
    MutexLock lock(shared_.mutex);
    --shared_.live_calls;
    shared_.changed.notify_all();
  }

  void on_accepted(bool ok) {
    if (!ok) {  // the server shuts down; gRPC then sends no `done`
      delete this;
      return;
    }
    wait_for(shared_, method_);
    ++pending_;  // done
    caller_ = {.method = method_,
               .name = caller_name(context_),
               .epoch = epoch_of_metadata(),
               .key = metadata(kStreamKey)};
    Status allowed = check_caller(context_, shared_.token);
    if (allowed.ok()) allowed = check_cluster();
    if (allowed.ok()) allowed = shared_.handler->on_open(caller_);
    if (!allowed.ok()) {
      finish(std::move(allowed));
      return;
    }
    open_ = true;
    context_.AddInitialMetadata(kAcceptedKey, "1");
    ++pending_;
    stream_.SendInitialMetadata(&tags_[1]);
    read();
  }

  // Empty if the caller did not give it.
  std::string metadata(const char* key) const {
    const auto& all = context_.client_metadata();
    const auto found = all.find(key);
    return found == all.end() ? "" : std::string(found->second.data(), found->second.size());
  }

  // 0, which no plan has, for what is no number.
  uint64_t epoch_of_metadata() const {
    const std::string text = metadata(kEpochKey);
    uint64_t epoch = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), epoch);
    return error == std::errc() && end == text.data() + text.size() ? epoch : 0;
  }

  Status check_cluster() {
    const std::string theirs = metadata(kClusterKey);
    const MutexLock lock(shared_.cluster_mutex);
    if (shared_.cluster_id.empty() || theirs == shared_.cluster_id) return ok_status();
    return failed_precondition(
        fmt::format("{} belongs to cluster {}, and this node to cluster {}", caller_.name,
                    theirs.empty() ? "?" : peer_text(theirs), shared_.cluster_id),
        "another cluster's node has taken this address");
  }

  void read() {
    ++pending_;
    stream_.Read(&message_, &tags_[2]);
  }

  void on_read(bool ok) {
    if (finishing_) return;
    if (!ok) {  // the caller's orderly end, or a broken connection: `done` tells
      finish(ok_status());
      return;
    }
    Status status = take_message();
    if (status.ok()) {
      read();
    } else {
      finish(std::move(status));
    }
  }

  Status take_message() {
    std::optional<Frame> frame = TRY(add_buffer(assembler_, message_));
    message_.Clear();
    set_unfinished(!frame);
    if (frame) return shared_.handler->on_frame(caller_, std::move(*frame));
    piece_deadline_ = SystemClock().now() + shared_.limits.piece_timeout;
    if (assembler_.parts_here() > 1) return ok_status();
    return shared_.handler->on_first_piece(caller_, assembler_.epoch(), assembler_.step());
  }

  void set_unfinished(bool unfinished) {
    if (unfinished == is_unfinished_) return;
    is_unfinished_ = unfinished;
    if (unfinished) {
      shared_.unfinished.push_back(this);
    } else {
      std::erase(shared_.unfinished, this);
    }
  }

  // Once; a read may still be under way, and ends with the call.
  void finish(Status status) {
    if (finishing_) return;
    finishing_ = true;
    set_unfinished(false);
    status_ = std::move(status);
    ++pending_;
    stream_.Finish(to_grpc(status_), &tags_[3]);
  }

  void close() {
    if (open_) {
      const bool broken = status_.ok() && (context_.IsCancelled() || !finish_sent_);
      shared_.handler->on_closed(
          caller_, broken ? unavailable(fmt::format("the connection from {} broke", caller_.name))
                          : status_);
    }
    delete this;
  }

  Shared& shared_;
  const StreamMethod method_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_;
  FrameAssembler assembler_;
  grpc::ByteBuffer message_;
  std::array<CallTag, 5> tags_;  // by CallEvent
  StreamCaller caller_;
  TimePoint piece_deadline_;
  bool is_unfinished_ = false;  // stands among the shared ones
  bool finishing_ = false;
  Status status_;
  int pending_ = 0;
  bool open_ = false;  // the handler let it in, and hears of the end
  bool finished_ = false;
  bool finish_sent_ = false;
  bool done_ = false;
};

class Acceptor final : public StreamAcceptor {
 public:
  Acceptor(std::string token, StreamHandler& handler, const StreamLimits& limits)
      : shared_(limits) {
    shared_.token = std::move(token);
    shared_.handler = &handler;
  }
  ~Acceptor() override { stop(); }

  void expect_cluster(const std::string& cluster_id) override {
    const MutexLock lock(shared_.cluster_mutex);
    shared_.cluster_id = cluster_id;
  }

  void register_with(grpc::ServerBuilder& builder) override {
    builder.RegisterService(&shared_.service);
    shared_.events = builder.AddCompletionQueue();
  }

  Status start() override {
    TRY(start_thread(thread_, [this] { run(); }));  // first: calls end on it
    Call::wait_for(shared_, StreamMethod::steps);
    Call::wait_for(shared_, StreamMethod::results);
    return ok_status();
  }

  void stop() override {
    if (!shared_.events) return;
    {
      const auto deadline = std::chrono::steady_clock::now() + kStopMax;
      MutexLock lock(shared_.mutex);
      while (shared_.live_calls > 0) {
        const bool in_time = shared_.changed.wait_until(shared_.mutex, deadline);
        STRATA_CHECK(in_time || shared_.live_calls == 0,
                     "a stream's handler has not returned for 10 s");
      }
    }
    shared_.events->Shutdown();
    if (thread_.joinable()) {
      thread_.join();
    } else {
      run();
    }
    shared_.events.reset();
  }

 private:
  void run() {
    void* tag = nullptr;
    bool ok = false;
    for (;;) {
      const auto next = shared_.events->AsyncNext(&tag, &ok, next_deadline());
      if (next == grpc::CompletionQueue::SHUTDOWN) return;
      if (next == grpc::CompletionQueue::GOT_EVENT) {
        const auto* event = static_cast<const CallTag*>(tag);
        event->call->on_event(event->event, ok);
      }
      if (!shared_.unfinished.empty()) end_late_calls();
    }
  }

  // Of the first piece that is waited for.
  gpr_timespec next_deadline() const {
    if (shared_.unfinished.empty()) return gpr_inf_future(GPR_CLOCK_MONOTONIC);
    TimePoint first = TimePoint::max();
    for (const Call* call : shared_.unfinished) first = std::min(first, call->piece_deadline());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(first - SystemClock().now());
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis(left.count(), GPR_TIMESPAN));
  }

  void end_late_calls() {
    const TimePoint now = SystemClock().now();
    const std::vector<Call*> waiting = shared_.unfinished;  // ending one takes it out
    for (Call* call : waiting) {
      if (now >= call->piece_deadline()) call->on_piece_late();
    }
  }

  Shared shared_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<StreamAcceptor> StreamAcceptor::create(std::string token, StreamHandler& handler,
                                                       const StreamLimits& limits) {
  return std::make_unique<Acceptor>(std::move(token), handler, limits);
}

}  // namespace strata::remote
