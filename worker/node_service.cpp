#include "worker/node_service.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <deque>
#include <thread>

#include "backends/remote/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"
#include "strata/v1/cluster.grpc.pb.h"

namespace strata::worker {
namespace {

using remote::FromWorker;

// Messages that may wait for the network: commands are answered one by one, so that more than a
// few mean that the coordinator takes nothing.
constexpr size_t kWaitingMax = 1024;
// How long a goodbye may take.
constexpr std::chrono::milliseconds kGoodbye{500};
// Calls by which the way to the coordinator is measured; the first also sets up the connection.
constexpr int kPings = 16;

class Link final : public CoordinatorLink {
 public:
  explicit Link(const LinkOptions& options)
      : options_(options),
        channel_(remote::open_channel(options.coordinator)),
        stub_(v1::Cluster::NewStub(channel_)) {}

  ~Link() override {
    {
      MutexLock lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    context_.TryCancel();
    if (control_.joinable()) control_.join();
    static_cast<void>(finish());
  }

  Status join(const std::function<remote::Hello()>& hello) {
    TRY(remote::wait_connected(*channel_, options_.coordinator, "the coordinator",
                               options_.connect_timeout, options_.stop));
    remote::Hello first_words = hello();
    first_words.hop_us = TRY(measure_hop_us());
    const std::stop_callback on_stop(options_.stop, [this] { context_.TryCancel(); });
    remote::add_credentials(context_, options_.token, options_.name);
    stream_ = stub_->Join(&context_);
    {
      const MutexLock lock(mutex_);
      waiting_.push_back(remote::to_proto(FromWorker(std::move(first_words))));
    }
    welcome_deadline_ = clock_.now() + options_.connect_timeout;
    TRY(start_thread(control_, [this] { run_control(); }));
    v1::ToWorker message;
    if (!stream_->Read(&message)) return finish();
    const remote::ToWorker first = TRY(remote::from_proto(message));
    const auto* welcome = std::get_if<remote::Welcome>(&first.command);
    if (welcome == nullptr) {
      return failed_precondition("the coordinator's first message is no welcome");
    }
    MutexLock lock(mutex_);
    welcome_ = *welcome;
    is_member_ = true;
    changed_.notify_all();
    return ok_status();
  }

  const remote::Welcome& welcome() const override { return welcome_; }

  Status run(const std::function<void(remote::ToWorker)>& on_command) override {
    v1::ToWorker message;
    while (stream_->Read(&message)) {
      Result<remote::ToWorker> command = remote::from_proto(message);
      if (command.ok()) {
        on_command(std::move(command).value());
      } else {
        refuse(message.command_id(), command.status());
      }
    }
    const Status why = finish();
    MutexLock lock(mutex_);
    return leaving_ ? ok_status() : why;
  }

  void send(const FromWorker& message) override {
    v1::FromWorker out = remote::to_proto(message);
    MutexLock lock(mutex_);
    if (ending_) return;
    if (waiting_.size() >= kWaitingMax) {
      context_.TryCancel();
      return;
    }
    waiting_.push_back(std::move(out));
    changed_.notify_all();
  }

  void leave(const std::string& reason) override {
    send(remote::Leaving{reason});
    MutexLock lock(mutex_);
    leaving_ = true;
    leave_deadline_ = clock_.now() + kGoodbye;
    changed_.notify_all();
  }

 private:
  // Half of the quickest way there and back. Errors: what the coordinator refuses the call with.
  Result<double> measure_hop_us() {
    double best_us = 0;
    for (int round = 0; round < kPings; ++round) {
      grpc::ClientContext context;
      remote::add_credentials(context, options_.token, options_.name);
      context.set_deadline(std::chrono::system_clock::now() + options_.connect_timeout);
      v1::PingReply reply;
      const TimePoint begin = clock_.now();
      const grpc::Status status = stub_->Ping(&context, v1::PingRequest(), &reply);
      if (!status.ok()) return remote::from_grpc(status);
      const double us = std::chrono::duration<double, std::micro>(clock_.now() - begin).count() / 2;
      if (round == 0 || us < best_us) best_us = us;
    }
    return best_us;
  }

  void refuse(uint64_t command_id, const Status& why) {
    send(remote::CommandDone{command_id, 0, why.with_context(options_.name), {}});
  }

  Status finish() {
    if (finished_ || !stream_) return finish_status_;
    finished_ = true;
    {
      MutexLock lock(mutex_);
      ending_ = true;
      changed_.notify_all();
    }
    // The control thread may be inside a Write, which ends when the call does.
    if (control_.joinable()) control_.join();
    const grpc::Status status = stream_->Finish();
    if (timed_out_) {
      finish_status_ = unavailable(
          fmt::format("the coordinator at {} does not answer", options_.coordinator.text()));
    } else if (status.ok()) {
      finish_status_ = unavailable("the coordinator ended the stream");
    } else if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
      finish_status_ = unavailable(fmt::format(
          "lost the coordinator at {}: {}", options_.coordinator.text(), status.error_message()));
    } else {
      finish_status_ = remote::from_grpc(status);
    }
    return finish_status_;
  }

  // What the control thread does next.
  enum class Action { write, heartbeat, half_close, cancel, end };

  Action next_action(v1::FromWorker& message) {
    MutexLock lock(mutex_);
    for (;;) {
      const TimePoint now = clock_.now();
      if (ending_) return Action::end;
      if (!waiting_.empty()) {
        message = std::move(waiting_.front());
        waiting_.pop_front();
        return Action::write;
      }
      if (leaving_ && !said_goodbye_) {
        said_goodbye_ = true;
        return Action::half_close;
      }
      if (leaving_ && now >= leave_deadline_) return Action::cancel;
      if (!is_member_ && now >= welcome_deadline_) {
        timed_out_ = true;
        return Action::cancel;
      }
      if (is_member_ && !leaving_ && now >= next_heartbeat_) {
        next_heartbeat_ = now + std::chrono::milliseconds(welcome_.heartbeat_ms);
        return Action::heartbeat;
      }
      const TimePoint work = is_member_ ? next_heartbeat_ : welcome_deadline_;
      changed_.wait_until(mutex_, leaving_ ? leave_deadline_ : work);
    }
  }

  // Until the stream ends; a write that fails means that it has, and the reader learns why.
  void run_control() {
    bool open = true;
    while (open) {
      v1::FromWorker message;
      switch (next_action(message)) {
        case Action::heartbeat:
          message = remote::to_proto(FromWorker(options_.heartbeat()));
          open = stream_->Write(message);
          break;
        case Action::write:
          open = stream_->Write(message);
          break;
        case Action::half_close:
          stream_->WritesDone();
          break;
        case Action::cancel:
          context_.TryCancel();
          open = false;
          break;
        case Action::end:
          open = false;
          break;
      }
    }
  }

  const LinkOptions options_;
  const SystemClock clock_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Cluster::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::FromWorker, v1::ToWorker>> stream_;
  bool finished_ = false;  // the reader's
  Status finish_status_;   // the reader's
  TimePoint welcome_deadline_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::FromWorker> waiting_ STRATA_GUARDED_BY(mutex_);
  remote::Welcome welcome_;  // written once, before is_member_
  bool is_member_ STRATA_GUARDED_BY(mutex_) = false;
  bool ending_ STRATA_GUARDED_BY(mutex_) = false;
  bool leaving_ STRATA_GUARDED_BY(mutex_) = false;
  bool said_goodbye_ STRATA_GUARDED_BY(mutex_) = false;
  bool timed_out_ = false;  // read after the control thread has ended
  TimePoint next_heartbeat_ STRATA_GUARDED_BY(mutex_);
  TimePoint leave_deadline_ STRATA_GUARDED_BY(mutex_);

  std::thread control_;
};

}  // namespace

Result<std::unique_ptr<CoordinatorLink>> CoordinatorLink::join(
    const LinkOptions& options, const std::function<remote::Hello()>& hello) {
  TRY(remote::check_rpc_threads());
  auto link = std::make_unique<Link>(options);
  TRY(link->join(hello));
  return std::unique_ptr<CoordinatorLink>(std::move(link));
}

}  // namespace strata::worker
