// The sending end of a stream; see activation_stream.h.
//
// Completion-queue tags are the values of Event. At most one write is under way; whoever has set
// `writing_` (a sender or the stream's thread) owns the front of the queue until the write's event.
#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <thread>

#include "backends/remote/activation_stream.h"
#include "backends/remote/stream_slices.h"
#include "backends/remote/wire.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"

namespace strata::remote {
namespace {

using std::chrono::milliseconds;

// Written by the caller up to here: copying into the socket's buffer takes less time than waking
// the stream's thread (about 10 µs on the build machine).
constexpr uint64_t kInlineWriteBytes = 64 << 10;
// How long the destructor lets an orderly end take before it cancels.
constexpr milliseconds kOrderlyEnd{250};

enum class Event : intptr_t { start = 1, accepted, read, write, wake, half_close, finish, check };

void* tag(Event event) { return reinterpret_cast<void*>(event); }

class Stream final : public OutgoingStream {
 public:
  Stream(const StreamOptions& options, Closed closed)
      : options_(options),
        closed_(std::move(closed)),
        channel_(open_channel(options.address)),
        stub_(channel_) {}

  ~Stream() override {
    if (thread_.joinable()) {
      end_in_order();
      thread_.join();
    }
    queue_events_.Shutdown();
    void* event = nullptr;
    bool ok = false;
    while (queue_events_.Next(&event, &ok)) {
    }
  }

  Status connect() {
    const auto deadline = std::chrono::system_clock::now() + options_.connect_timeout;
    TRY(wait_connected(*channel_, options_.address, options_.peer, options_.connect_timeout,
                       options_.stop));
    add_credentials(context_, options_.token, options_.caller);
    if (!options_.cluster_id.empty()) context_.AddMetadata(kClusterKey, options_.cluster_id);
    if (options_.epoch != 0) context_.AddMetadata(kEpochKey, std::to_string(options_.epoch));
    if (!options_.key.empty()) context_.AddMetadata(kStreamKey, options_.key);
    const char* method = options_.method == StreamMethod::steps ? "/strata.v1.Stage/Steps"
                                                                : "/strata.v1.Stage/Results";
    call_ = stub_.PrepareCall(&context_, method, &queue_events_);
    call_->StartCall(tag(Event::start));
    if (!next_is(Event::start, deadline)) return give_up();
    call_->ReadInitialMetadata(tag(Event::accepted));
    if (!next_is(Event::accepted, deadline) ||
        context_.GetServerInitialMetadata().count(kAcceptedKey) == 0) {
      return give_up();
    }
    call_->Read(&received_, tag(Event::read));
    Status started = start_thread(thread_, [this] { run(); });
    if (!started.ok()) context_.TryCancel();  // ends the read
    return started;
  }

  Status send(Frame frame) override {
    TRY(check_frame(frame));
    const auto shared = std::make_shared<const Frame>(std::move(frame));
    const bool small =
        shared->record.size() + shared->rows.size() * sizeof(float) <= kInlineWriteBytes;
    {
      MutexLock lock(mutex_);
      if (ended_) return unavailable(fmt::format("the stream to {} has ended", options_.peer));
      if (waiting_.size() >= options_.queue_frames_max) {
        return unavailable(
            fmt::format("{} takes no more frames: {} wait for it", options_.peer, waiting_.size()));
      }
      waiting_.push_back({shared, 0});
      if (writing_) return ok_status();
      writing_ = true;
      if (!small) {
        wake_.Set(&queue_events_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag(Event::wake));
        return ok_status();
      }
    }
    write_from_sender();
    return ok_status();
  }

 private:
  struct Waiting {
    std::shared_ptr<const Frame> frame;
    uint32_t part = 0;  // the next to be written
  };

  bool next_is(Event wanted, std::chrono::system_clock::time_point deadline) {
    void* event = nullptr;
    bool ok = false;
    return queue_events_.AsyncNext(&event, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT &&
           event == tag(wanted) && ok;
  }

  // Ends a call that was not accepted and says why.
  Status give_up() {
    // What the peer refused with is there already; else this is a timeout, cancelled here.
    grpc::Status status;
    call_->Finish(&status, tag(Event::finish));
    if (!wait_for_finish(milliseconds(500))) {
      context_.TryCancel();
      wait_for_finish(milliseconds(5000));
    }
    if (!status.ok() && status.error_code() != grpc::StatusCode::CANCELLED) {
      return from_grpc(status).with_context(
          fmt::format("{} at {}", options_.peer, options_.address.text()));
    }
    return unavailable(fmt::format("{} at {} does not accept the stream within {} ms",
                                   options_.peer, options_.address.text(),
                                   options_.connect_timeout.count()));
  }

  bool wait_for_finish(milliseconds timeout) {
    const auto deadline = std::chrono::system_clock::now() + timeout;
    void* event = nullptr;
    bool ok = false;
    while (queue_events_.AsyncNext(&event, &ok, deadline) == grpc::CompletionQueue::GOT_EVENT) {
      if (event == tag(Event::finish)) return true;
    }
    return false;
  }

  // Requires: this thread has set writing_, and something waits.
  void write_front() {
    std::shared_ptr<const Frame> frame;
    uint32_t part = 0;
    {
      MutexLock lock(mutex_);
      frame = waiting_.front().frame;
      part = waiting_.front().part;
    }
    call_->Write(piece_buffer(frame, part), tag(Event::write));
  }

  // Most writes are done by the time that Write returns. Taking their event here leaves the
  // stream's thread asleep: waking it costs a few µs of a core that the next stage may be waiting
  // for.
  void write_from_sender() {
    void* event = nullptr;
    bool ok = false;
    const auto got = queue_events_.DoThenAsyncNext([this] { write_front(); }, &event, &ok,
                                                   gpr_inf_past(GPR_CLOCK_MONOTONIC));
    if (got != grpc::CompletionQueue::GOT_EVENT) return;
    on_event(event, ok);
    // Whatever that event was: if it was the stream's last, its thread has to learn of it.
    if (is_over() && !told_over_) {
      told_over_ = true;
      over_.Set(&queue_events_, gpr_inf_past(GPR_CLOCK_MONOTONIC), tag(Event::check));
    }
  }

  void run() {
    void* event = nullptr;
    bool ok = false;
    while (!is_over() && queue_events_.Next(&event, &ok)) on_event(event, ok);
    report();
  }

  // Threads: the stream's and the sender's.
  void on_event(void* event, bool ok) {
    switch (static_cast<Event>(reinterpret_cast<intptr_t>(event))) {
      case Event::read:
        on_read(ok);
        break;
      case Event::wake:
        write_front();
        break;
      case Event::write:
        on_written(ok);
        break;
      case Event::half_close:
        on_half_closed();
        break;
      case Event::finish:
        on_finished();
        break;
      case Event::start:
      case Event::accepted:
      case Event::check:
        break;
    }
  }

  bool is_over() {
    MutexLock lock(mutex_);
    return finished_ && !writing_ && !half_closing_;
  }

  void on_finished() {
    MutexLock lock(mutex_);
    finished_ = true;
  }

  // The peer sends nothing, so that a read ends with the stream.
  void on_read(bool ok) {
    if (ok) context_.TryCancel();
    {
      MutexLock lock(mutex_);
      ended_ = true;
    }
    call_->Finish(&status_, tag(Event::finish));
  }

  void on_written(bool ok) {
    bool half_close = false;
    {
      MutexLock lock(mutex_);
      Waiting& front = waiting_.front();
      if (++front.part == piece_count(*front.frame)) waiting_.pop_front();
      if (!ok || ended_) waiting_.clear();
      if (waiting_.empty()) writing_ = false;
      half_close = !writing_ && closing_ && !ended_ && !half_closing_;
      if (half_close) half_closing_ = true;
      if (!writing_ && !half_close) return;
    }
    if (half_close) {
      call_->WritesDone(tag(Event::half_close));
    } else {
      write_front();
    }
  }

  void on_half_closed() {
    MutexLock lock(mutex_);
    half_closing_ = false;
  }

  // From the destructor: half-closes once what waits is written, and cancels if that takes long.
  void end_in_order() {
    bool half_close = false;
    {
      MutexLock lock(mutex_);
      closing_ = true;
      half_close = !writing_ && !ended_;
      if (half_close) half_closing_ = true;
    }
    if (half_close) call_->WritesDone(tag(Event::half_close));
    MutexLock lock(mutex_);
    const auto deadline = std::chrono::steady_clock::now() + kOrderlyEnd;
    while (!reported_) {
      if (!reported_changed_.wait_until(mutex_, deadline)) break;
    }
    if (!reported_) context_.TryCancel();
  }

  void report() {
    bool closing = false;
    {
      MutexLock lock(mutex_);
      closing = closing_;
      reported_ = true;
      reported_changed_.notify_all();
    }
    if (closing || !closed_) return;
    const std::string who = fmt::format("{} at {}", options_.peer, options_.address.text());
    if (status_.ok()) {
      closed_(unavailable(fmt::format("lost {}: it ended the stream", who)));
    } else if (status_.error_code() == grpc::StatusCode::UNAVAILABLE ||
               status_.error_code() == grpc::StatusCode::CANCELLED) {
      closed_(unavailable(fmt::format("lost {}: {}", who, status_.error_message()),
                          "see that node's log; it may have been ended or cut off"));
    } else {
      closed_(from_grpc(status_).with_context(who));
    }
  }

  const StreamOptions options_;
  const Closed closed_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_events_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer received_;
  grpc::Status status_;     // after Event::finish
  grpc::Alarm wake_;        // who has set writing_
  grpc::Alarm over_;        // the sender
  bool told_over_ = false;  // the sender

  Mutex mutex_;
  std::deque<Waiting> waiting_ STRATA_GUARDED_BY(mutex_);
  bool writing_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;         // the read has failed
  bool finished_ STRATA_GUARDED_BY(mutex_) = false;      // status_ is there
  bool closing_ STRATA_GUARDED_BY(mutex_) = false;       // the destructor runs
  bool half_closing_ STRATA_GUARDED_BY(mutex_) = false;  // WritesDone is under way
  bool reported_ STRATA_GUARDED_BY(mutex_) = false;      // the thread is about to end
  CondVar reported_changed_;

  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<OutgoingStream>> OutgoingStream::open(const StreamOptions& options,
                                                             Closed closed) {
  auto stream = std::make_unique<Stream>(options, std::move(closed));
  TRY(stream->connect());
  return std::unique_ptr<OutgoingStream>(std::move(stream));
}

}  // namespace strata::remote
