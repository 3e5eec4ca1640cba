#include "coordinator/cluster_service.h"

#include <fmt/format.h>
#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "backends/remote/channel.h"
#include "backends/remote/raw_messages.h"
#include "backends/remote/wire.h"
#include "runtime/base/mutex.h"
#include "strata/v1/cluster.grpc.pb.h"

namespace strata::coordinator {
namespace {

// Commands that a worker has not taken yet. A plan sends it three.
constexpr size_t kCommandsWaitingMax = 64;
// Events of one answer that a client has not taken yet: a few hundred KiB. A client that lets more
// wait has lost its answer; it learns why if it reads on within the patience.
constexpr size_t kEventsWaitingMax = 4096;
constexpr std::chrono::seconds kSlowReaderPatience{5};

class ServiceImpl;

// Requests come as bytes, so that those that are no message get an answer in words.
using RawCluster =
    v1::Cluster::WithRawCallbackMethod_Join<v1::Cluster::WithRawCallbackMethod_Generate<
        v1::Cluster::WithRawCallbackMethod_Status<v1::Cluster::WithRawCallbackMethod_Ping<
            v1::Cluster::WithRawCallbackMethod_Replan<v1::Cluster::Service>>>>>;
using RawJoin = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;
using RawAnswer = grpc::ServerWriteReactor<grpc::ByteBuffer>;

// Leaves out what makes the status larger than a message, whatever the members say of themselves.
void fit_message(v1::ClusterStatus& status) {
  constexpr size_t kRoom = remote::kMessageBytesMax - 1024;
  if (status.ByteSizeLong() <= kRoom) return;
  for (v1::NodeStatus& node : *status.mutable_nodes()) {
    node.clear_devices();
    node.clear_detail();
  }
  const int nodes = status.nodes_size();
  while (status.ByteSizeLong() > kRoom && status.nodes_size() > 0) {
    const int keep = status.nodes_size() / 2;
    status.mutable_nodes()->DeleteSubrange(keep, status.nodes_size() - keep);
  }
  status.set_detail(fmt::format("{} of {} nodes shown, in short: all would not fit a message",
                                status.nodes_size(), nodes));
}

// A worker's stream. Deletes itself in OnDone, as gRPC wants it.
class JoinReactor final : public RawJoin {
 public:
  JoinReactor(ServiceImpl& service, MemberId id, std::string peer)
      : service_(service), id_(id), peer_(std::move(peer)) {
    StartRead(&incoming_);
  }

  void send(v1::ToWorker message) {
    const MutexLock lock(mutex_);
    if (ending_) return;
    if (waiting_.size() >= kCommandsWaitingMax) {
      ending_ = resource_exhausted("the worker does not take its commands");
    } else {
      waiting_.push_back(std::move(message));
    }
    write_next();
  }
  void end(const Status& why) {
    const MutexLock lock(mutex_);
    if (!ending_) ending_ = why;
    write_next();
  }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) waiting_.clear();
    write_next();
  }
  void OnCancel() override {
    const MutexLock lock(mutex_);
    waiting_.clear();
    if (!ending_) ending_ = unavailable("its connection broke");
    write_next();
  }
  void OnDone() override;

 private:
  // Starts the next write, or finishes once nothing is left to write.
  void write_next() STRATA_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      outgoing_ = remote::serialize_message(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      StartWrite(&outgoing_);
    } else if (ending_) {
      finished_ = true;
      Finish(remote::to_grpc(*ending_));
    }
  }

  ServiceImpl& service_;
  const MemberId id_;
  const std::string peer_;
  grpc::ByteBuffer incoming_;  // the read in flight
  bool said_hello_ = false;    // gRPC calls one read's reaction after the other

  Mutex mutex_;
  grpc::ByteBuffer outgoing_ STRATA_GUARDED_BY(mutex_);
  std::deque<v1::ToWorker> waiting_ STRATA_GUARDED_BY(mutex_);
  bool writing_ STRATA_GUARDED_BY(mutex_) = false;
  bool finished_ STRATA_GUARDED_BY(mutex_) = false;
  std::optional<Status> ending_ STRATA_GUARDED_BY(mutex_);
};

// A client's stream. The engine's thread pushes events through a shared state that outlives it.
class GenerateReactor final : public RawAnswer {
 public:
  // What the listener refers to.
  struct Link {
    Mutex mutex;
    GenerateReactor* reactor STRATA_GUARDED_BY(mutex) = nullptr;
  };

  GenerateReactor(ServiceImpl& service, grpc::CallbackServerContext& context)
      : service_(service), context_(context) {
    remote::mark_answer(context);
  }

  // Apart from the constructor, so that the service knows the reactor first.
  void begin(const grpc::ByteBuffer& message);
  void push(AnswerEvent event);
  void end(const Status& why) {
    const MutexLock lock(mutex_);
    if (!ending_) ending_ = why;
    write_next();
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    writing_ = false;
    if (!ok) waiting_.clear();
    write_next();
  }
  void OnCancel() override;
  void OnDone() override;

 private:
  void cancel_request();
  void cut_off();
  void write_next() STRATA_REQUIRES(mutex_) {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      outgoing_ = remote::serialize_message(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      StartWrite(&outgoing_);
    } else if (ending_) {
      finished_ = true;
      Finish(remote::to_grpc(*ending_));
    }
  }

  ServiceImpl& service_;
  grpc::CallbackServerContext& context_;
  const std::shared_ptr<Link> link_ = std::make_shared<Link>();
  std::atomic<RequestId> request_id_ = 0;
  std::atomic<bool> cancel_wanted_ = false;

  Mutex mutex_;
  grpc::ByteBuffer outgoing_ STRATA_GUARDED_BY(mutex_);
  std::deque<v1::GenerateEvent> waiting_ STRATA_GUARDED_BY(mutex_);
  bool writing_ STRATA_GUARDED_BY(mutex_) = false;
  bool finished_ STRATA_GUARDED_BY(mutex_) = false;
  std::optional<Status> ending_ STRATA_GUARDED_BY(mutex_);
  std::unique_ptr<grpc::Alarm> patience_;  // set once, for a reader that is too slow
};

// A stream that is refused before it begins.
template <typename Reactor>
class RefusedReactor final : public Reactor {
 public:
  explicit RefusedReactor(const Status& why) { this->Finish(remote::to_grpc(why)); }
  void OnDone() override { delete this; }
};

class ServiceImpl final : public ClusterService, public RawCluster {
 public:
  ServiceImpl(std::string token, ClusterHandler& handler)
      : token_(std::move(token)), handler_(handler) {}

  grpc::Service& service() override { return *this; }

  void send(MemberId id, const remote::ToWorker& message) override {
    const MutexLock lock(mutex_);
    const auto found = joins_.find(id);
    if (found != joins_.end()) found->second->send(remote::to_proto(message));
  }
  void end(MemberId id, const strata::Status& why) override {
    const MutexLock lock(mutex_);
    const auto found = joins_.find(id);
    if (found != joins_.end()) found->second->end(why);
  }
  void end_all(const strata::Status& why) override {
    const MutexLock lock(mutex_);
    closing_ = why;
    for (const auto& [id, reactor] : joins_) reactor->end(why);
    for (GenerateReactor* reactor : answers_) reactor->end(why);
  }

  RawJoin* Join(grpc::CallbackServerContext* context) override {
    using Refused = RefusedReactor<RawJoin>;
    const strata::Status allowed = remote::check_caller(*context, token_);
    if (!allowed.ok()) return new Refused(allowed);
    const MutexLock lock(mutex_);
    if (!closing_.ok()) return new Refused(closing_);
    const MemberId id = next_member_++;
    return joins_[id] = new JoinReactor(*this, id, context->peer());
  }

  RawAnswer* Generate(grpc::CallbackServerContext* context,
                      const grpc::ByteBuffer* request) override {
    using Refused = RefusedReactor<RawAnswer>;
    const strata::Status allowed = remote::check_caller(*context, token_);
    if (!allowed.ok()) return new Refused(allowed);
    auto* reactor = new GenerateReactor(*this, *context);
    {
      const MutexLock lock(mutex_);
      answers_.insert(reactor);
      if (!closing_.ok()) {
        reactor->end(closing_);
        return reactor;
      }
    }
    reactor->begin(*request);
    return reactor;
  }

  grpc::ServerUnaryReactor* Status(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    const strata::Status allowed = check<v1::StatusRequest>(*context, *request);
    if (allowed.ok()) {
      v1::ClusterStatus status = remote::to_proto(handler_.on_status());
      fit_message(status);
      *response = remote::serialize_message(status);
    }
    return answered(*context, allowed);
  }

  grpc::ServerUnaryReactor* Ping(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    const strata::Status allowed = check<v1::PingRequest>(*context, *request);
    if (allowed.ok()) *response = remote::serialize_message(v1::PingReply());
    return answered(*context, allowed);
  }

  grpc::ServerUnaryReactor* Replan(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    const strata::Status allowed = check<v1::ReplanRequest>(*context, *request);
    if (!allowed.ok()) return answered(*context, allowed);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    remote::mark_answer(*context);
    handler_.on_replan([reactor, response](const std::string& text) {
      v1::ReplanReply reply;
      reply.set_text(text);
      *response = remote::serialize_message(reply);
      reactor->Finish(grpc::Status::OK);
    });
    return reactor;
  }

  ClusterHandler& handler() { return handler_; }
  void forget(MemberId id) {
    const MutexLock lock(mutex_);
    joins_.erase(id);
  }
  void forget(GenerateReactor* reactor) {
    const MutexLock lock(mutex_);
    answers_.erase(reactor);
  }

 private:
  template <typename Request>
  strata::Status check(const grpc::CallbackServerContext& context,
                       const grpc::ByteBuffer& request) const {
    TRY(remote::check_caller(context, token_));
    return remote::parse_message<Request>(request).status();
  }
  static grpc::ServerUnaryReactor* answered(grpc::CallbackServerContext& context,
                                            const strata::Status& status) {
    grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
    remote::mark_answer(context);
    reactor->Finish(remote::to_grpc(status));
    return reactor;
  }

  const std::string token_;
  ClusterHandler& handler_;
  Mutex mutex_;  // before a reactor's
  std::map<MemberId, JoinReactor*> joins_ STRATA_GUARDED_BY(mutex_);
  std::set<GenerateReactor*> answers_ STRATA_GUARDED_BY(mutex_);
  MemberId next_member_ STRATA_GUARDED_BY(mutex_) = 1;
  strata::Status closing_ STRATA_GUARDED_BY(mutex_);
};

Result<remote::FromWorker> read_message(const grpc::ByteBuffer& bytes) {
  return remote::from_proto(TRY(remote::parse_message<v1::FromWorker>(bytes)));
}

Result<remote::GenerateRequest> read_request(const grpc::ByteBuffer& bytes) {
  return remote::from_proto(TRY(remote::parse_message<v1::GenerateRequest>(bytes)));
}

void JoinReactor::OnReadDone(bool ok) {
  if (!ok) {
    end(ok_status());
    return;
  }
  Result<remote::FromWorker> message = read_message(incoming_);
  if (!message.ok()) {
    end(message.status());
    return;
  }
  auto* hello = std::get_if<remote::Hello>(&*message);
  if ((hello != nullptr) == said_hello_) {
    end(invalid_argument("a worker's first message, and no later one, is hello"));
    return;
  }
  if (hello != nullptr) {
    said_hello_ = true;
    service_.handler().on_hello(id_, std::move(*hello), peer_);
  } else {
    service_.handler().on_message(id_, std::move(message).value());
  }
  StartRead(&incoming_);
}

void JoinReactor::OnDone() {
  service_.forget(id_);
  strata::Status why;
  {
    const MutexLock lock(mutex_);
    if (ending_) why = *ending_;
  }
  if (said_hello_) service_.handler().on_stream_end(id_, why);
  delete this;
}

void GenerateReactor::begin(const grpc::ByteBuffer& message) {
  Result<remote::GenerateRequest> request = read_request(message);
  if (!request.ok()) {
    end(request.status());
    return;
  }
  {
    const MutexLock lock(link_->mutex);
    link_->reactor = this;
  }
  const auto listener = [link = link_](AnswerEvent event) {
    const MutexLock lock(link->mutex);
    if (link->reactor != nullptr) link->reactor->push(std::move(event));
  };
  request_id_ = service_.handler().on_generate(std::move(request).value(), listener);
  if (cancel_wanted_) cancel_request();
}

void GenerateReactor::push(AnswerEvent event) {
  bool too_slow = false;
  {
    const MutexLock lock(mutex_);
    if (ending_) return;
    if (const auto* failure = std::get_if<strata::Status>(&event)) {
      ending_ = *failure;
    } else if (waiting_.size() >= kEventsWaitingMax) {
      too_slow = true;
      waiting_.clear();
      ending_ = resource_exhausted("the client takes the answer too slowly");
    } else {
      remote::GenerateEvent record;
      if (auto* started = std::get_if<remote::GenerateStarted>(&event))
        record = std::move(*started);
      if (auto* token = std::get_if<remote::GenerateToken>(&event)) record = std::move(*token);
      if (const auto* finished = std::get_if<remote::GenerateFinished>(&event)) {
        record = *finished;
        ending_ = ok_status();
      }
      waiting_.push_back(remote::to_proto(record));
    }
    write_next();
  }
  if (too_slow) {
    cancel_request();
    cut_off();
  }
}

// The write under way may never end, and the status can only follow it.
void GenerateReactor::cut_off() {
  patience_ = std::make_unique<grpc::Alarm>();
  patience_->Set(std::chrono::system_clock::now() + kSlowReaderPatience,
                 [link = link_](bool in_time) {
                   const MutexLock lock(link->mutex);
                   if (in_time && link->reactor != nullptr) link->reactor->context_.TryCancel();
                 });
}

void GenerateReactor::cancel_request() {
  cancel_wanted_ = true;
  if (const RequestId id = request_id_; id != 0) service_.handler().on_cancel(id);
}

void GenerateReactor::OnCancel() {
  cancel_request();
  end(cancelled("the client has gone"));
}

void GenerateReactor::OnDone() {
  {
    const MutexLock lock(link_->mutex);
    link_->reactor = nullptr;
  }
  service_.forget(this);
  cancel_request();  // no effect on an answer that has ended
  delete this;
}

}  // namespace

std::unique_ptr<ClusterService> ClusterService::create(std::string token, ClusterHandler& handler) {
  return std::make_unique<ServiceImpl>(std::move(token), handler);
}

}  // namespace strata::coordinator
