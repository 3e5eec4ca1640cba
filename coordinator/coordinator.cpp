#include "coordinator/coordinator.h"

#include <fmt/format.h>

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "backends/remote/remote_stage.h"
#include "backends/remote/token.h"
#include "backends/remote/weights_service.h"
#include "coordinator/cluster_service.h"
#include "runtime/base/base_name.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/random.h"

namespace strata::coordinator {
namespace {

using remote::PipelineReceiver;
using remote::RemoteStage;

constexpr auto kShutdownGrace = std::chrono::milliseconds(500);

constexpr size_t kClusterIdBytes = 16;

// Events for the control thread.
struct HelloEvent {
  MemberId id;
  remote::Hello hello;
  std::string grpc_peer;
};
struct MessageEvent {
  MemberId id;
  remote::FromWorker message;
};
struct StreamEndEvent {
  MemberId id;
  Status why;
};
struct PipelineFailureEvent {
  uint64_t epoch;
  Status why;
};
using ControlEvent = std::variant<HelloEvent, MessageEvent, StreamEndEvent, PipelineFailureEvent>;

}  // namespace

struct Coordinator::Impl final : ClusterHandler, remote::PipelineHandler {
  explicit Impl(CoordinatorOptions given)
      : options(std::move(given)), state(options.cluster), engine(options.engine) {}

  // ClusterHandler, from gRPC's threads.
  void on_hello(MemberId id, remote::Hello hello, const std::string& grpc_peer) override {
    post(HelloEvent{id, std::move(hello), grpc_peer});
  }
  void on_message(MemberId id, remote::FromWorker message) override {
    post(MessageEvent{id, std::move(message)});
  }
  void on_stream_end(MemberId id, const Status& why) override { post(StreamEndEvent{id, why}); }
  RequestId on_generate(const remote::GenerateRequest& request, AnswerListener listener) override {
    return generator->start(request, std::move(listener));
  }
  void on_cancel(RequestId id) override { generator->cancel(id); }
  remote::ClusterStatus on_status() override { return status(); }

  // PipelineHandler, from the acceptor's thread.
  Status on_step(const std::string& from, StepFrame) override {
    return failed_precondition(
        fmt::format("{} sent a step to the coordinator, which has no stage", from));
  }
  Status on_result(const std::string&, StepResult result) override {
    TRY(remote::check_epoch(result.epoch, pipeline_epoch.load()));
    if (user.sink != nullptr) {
      user.sink->deliver(std::move(result));
    } else {
      engine.deliver(std::move(result));
    }
    return ok_status();
  }
  void on_stream_closed(const std::string& from, remote::StreamMethod, const Status& why) override {
    if (why.ok()) return;
    post(PipelineFailureEvent{pipeline_epoch.load(),
                              unavailable(fmt::format("lost {}: {}", from, why.message()))});
  }

  void post(ControlEvent event);
  void run_control() noexcept;
  void handle(ControlEvent event, ClusterActions& actions);
  void carry_out(ClusterActions actions);
  void start_pipeline(const StartPipeline& start);
  void stop_pipeline(const Status& why);
  void note(const Note& line) const {
    if (options.on_note) options.on_note(line);
  }
  remote::ClusterStatus status() const;

  const CoordinatorOptions options;
  const SystemClock clock;
  mutable Mutex mutex;
  CondVar changed;  // events, readiness, stopping
  ClusterState state STRATA_GUARDED_BY(mutex);
  std::deque<ControlEvent> events STRATA_GUARDED_BY(mutex);
  bool pipeline_stands STRATA_GUARDED_BY(mutex) = false;
  bool stopping STRATA_GUARDED_BY(mutex) = false;
  // For the measured rate: what had been sampled at the last look.
  mutable TimePoint rate_since STRATA_GUARDED_BY(mutex);
  mutable uint64_t rate_tokens STRATA_GUARDED_BY(mutex) = 0;
  mutable double rate STRATA_GUARDED_BY(mutex) = 0;

  // After what their threads call back into.
  EngineLoop engine;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<ClusterService> service;
  std::unique_ptr<remote::WeightsService> weights;  // null without tensor digests
  std::unique_ptr<PipelineReceiver> receiver;
  std::unique_ptr<remote::RpcServer> server;
  PipelineUser user;
  std::atomic<uint64_t> pipeline_epoch = 0;

  std::thread control;
};

void Coordinator::Impl::post(ControlEvent event) {
  const MutexLock lock(mutex);
  events.push_back(std::move(event));
  changed.notify_all();
}

void Coordinator::Impl::handle(ControlEvent event, ClusterActions& actions) STRATA_REQUIRES(mutex) {
  const TimePoint now = clock.now();
  if (auto* hello = std::get_if<HelloEvent>(&event)) {
    auto listen = remote::parse_address(hello->hello.listen_address, remote::AddressUse::listening);
    if (!listen.ok()) {
      actions.push_back(EndStream{hello->id, listen.status()});
      return;
    }
    auto address = remote::advertised_address(*listen, hello->grpc_peer);
    if (!address.ok()) {
      actions.push_back(EndStream{hello->id, address.status()});
      return;
    }
    state.on_hello(hello->id, hello->hello, address->text(), now, actions);
  } else if (auto* message = std::get_if<MessageEvent>(&event)) {
    state.on_message(message->id, message->message, now, actions);
  } else if (auto* end = std::get_if<StreamEndEvent>(&event)) {
    state.on_stream_end(end->id, end->why, now, actions);
  } else if (auto* failure = std::get_if<PipelineFailureEvent>(&event)) {
    state.on_pipeline_failure(failure->epoch, failure->why, now, actions);
  }
}

void Coordinator::Impl::run_control() noexcept {
  Status told;  // what requests are refused with while there is no pipeline
  while (true) {
    ClusterActions actions;
    Status obstacle;
    {
      const MutexLock lock(mutex);
      const std::optional<TimePoint> wakeup = state.next_wakeup();
      while (events.empty() && !stopping) {
        if (!wakeup) {
          changed.wait(mutex);
        } else if (!changed.wait_until(mutex, *wakeup)) {
          break;
        }
      }
      if (stopping) return;
      while (!events.empty()) {
        ControlEvent event = std::move(events.front());
        events.pop_front();
        handle(std::move(event), actions);
      }
      state.on_tick(clock.now(), actions);
      obstacle = state.obstacle();
    }
    carry_out(std::move(actions));
    if (!obstacle.ok() && obstacle.to_string() != told.to_string()) engine.detach(obstacle);
    told = obstacle;
  }
}

void Coordinator::Impl::carry_out(ClusterActions actions) {
  // Clients first: they learn of a loss before the next plan is made.
  for (const ClusterAction& action : actions) {
    if (const auto* stop = std::get_if<StopPipeline>(&action)) stop_pipeline(stop->why);
  }
  for (const ClusterAction& action : actions) {
    if (const auto* send = std::get_if<SendToMember>(&action)) {
      service->send(send->member, send->message);
    } else if (const auto* end = std::get_if<EndStream>(&action)) {
      service->end(end->member, end->why);
    } else if (const auto* start = std::get_if<StartPipeline>(&action)) {
      start_pipeline(*start);
    } else if (const auto* line = std::get_if<Note>(&action)) {
      note(*line);
    }
  }
}

void Coordinator::Impl::start_pipeline(const StartPipeline& start) {
  const uint64_t epoch = start.epoch;
  const auto fail = [this, epoch](const Status& why) { post(PipelineFailureEvent{epoch, why}); };
  auto address = remote::parse_address(start.head_address, remote::AddressUse::dial);
  if (!address.ok()) return fail(address.status());
  auto head = RemoteStage::connect({.address = *address,
                                    .peer = start.head_name,
                                    .caller = "coordinator",
                                    .token = options.token},
                                   fail);
  if (!head.ok()) return fail(head.status());
  PipelineShape shape;
  shape.epoch = epoch;
  shape.stage_count = static_cast<uint32_t>(start.plan.stages.size());
  for (size_t g = 0; g < start.plan.group_blocks.size(); ++g) {
    shape.groups.push_back({.window = options.cluster.profile.group_windows[g],
                            .block_count = start.plan.group_blocks[g]});
  }
  shape.context = start.plan.context;
  shape.vocab_size = static_cast<int32_t>(options.cluster.profile.n_vocab);
  shape.slots = options.cluster.slots;
  shape.step_tokens = options.cluster.plan.step_tokens;
  shape.prefill_chunk = options.prefill_chunk;
  pipeline_epoch = epoch;
  std::shared_ptr<StepSink> sink = std::move(head).value();
  if (user.started) {
    user.started(shape, std::move(sink));
  } else {
    engine.attach(shape, std::move(sink));
  }
  note({.is_warning = false,
        .text = fmt::format("ready: {} stage{}, epoch {}", shape.stage_count,
                            shape.stage_count == 1 ? "" : "s", epoch)});
  const MutexLock lock(mutex);
  pipeline_stands = true;
  changed.notify_all();
}

void Coordinator::Impl::stop_pipeline(const Status& why) {
  if (user.stopped) {
    user.stopped(why);
  } else {
    engine.detach(why);
  }
  const MutexLock lock(mutex);
  pipeline_stands = false;
}

remote::ClusterStatus Coordinator::Impl::status() const {
  const EngineCounters counters = engine.counters();
  const TimePoint now = clock.now();
  const MutexLock lock(mutex);
  remote::ClusterStatus status = state.status(now);
  status.live_sequences = counters.live;
  status.waiting_sequences = counters.queued;
  const double seconds = std::chrono::duration<double>(now - rate_since).count();
  if (seconds >= 1) {
    rate = static_cast<double>(counters.tokens_sampled - rate_tokens) / seconds;
    rate_tokens = counters.tokens_sampled;
    rate_since = now;
  }
  status.measured_tokens_per_s = rate;
  if (status.state == "ready" && !pipeline_stands) {
    status.state = "loading";
    status.detail = "connecting to the first stage";
  }
  if (stopping) status.state = "stopping";
  return status;
}

// --- Coordinator ---------------------------------------------------------------------------------

Coordinator::Coordinator(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Coordinator::~Coordinator() { stop(); }

Result<std::unique_ptr<Coordinator>> Coordinator::start(CoordinatorOptions options) {
  TRY(remote::check_token(options.token));
  options.cluster.cluster_id = random_hex(kClusterIdBytes);
  options.cluster.model = {.base_name = base_name(options.file->path()),
                           .digest = options.model_digest};
  auto impl = std::make_unique<Impl>(std::move(options));
  Impl& self = *impl;
  self.generator = TRY(Generator::create(self.options.file, self.engine));
  self.service = ClusterService::create(self.options.token, self);
  self.receiver = std::make_unique<PipelineReceiver>(self.options.token, self);
  self.engine.on_pipeline_failure([&self](uint64_t epoch, const Status& why) {
    self.post(PipelineFailureEvent{epoch, why});
  });
  self.control = std::thread([&self] { self.run_control(); });
  std::unique_ptr<Coordinator> coordinator(new Coordinator(std::move(impl)));
  std::vector<grpc::Service*> services = {&self.service->service()};
  if (!self.options.tensor_digests.empty()) {
    self.weights = remote::WeightsService::create(
        self.options.token, self.options.cluster.model, self.options.file,
        {.tensors = self.options.tensor_digests, .manifest = {}, .model = {}});
    services.push_back(&self.weights->service());
  }
  // Last: from here on events come in.
  self.server = TRY(remote::RpcServer::start({.listen = self.options.listen,
                                              .insecure_network = self.options.insecure_network,
                                              .services = std::move(services),
                                              .streams = self.receiver->acceptor()}));
  return coordinator;
}

const remote::Address& Coordinator::address() const { return impl_->server->address(); }

bool Coordinator::wait_ready(Duration timeout) {
  const TimePoint deadline = impl_->clock.now() + timeout;
  const MutexLock lock(impl_->mutex);
  while (!impl_->pipeline_stands && !impl_->stopping) {
    if (!impl_->changed.wait_until(impl_->mutex, deadline)) return impl_->pipeline_stands;
  }
  return impl_->pipeline_stands;
}

Status Coordinator::obstacle() const {
  const MutexLock lock(impl_->mutex);
  return impl_->state.obstacle();
}

remote::ClusterStatus Coordinator::status() const { return impl_->status(); }
Generator& Coordinator::generator() { return *impl_->generator; }
EngineLoop& Coordinator::engine() { return impl_->engine; }

void Coordinator::use_pipeline(PipelineUser user) { impl_->user = std::move(user); }

void Coordinator::stop() {
  {
    const MutexLock lock(impl_->mutex);
    if (impl_->stopping) return;
    impl_->stopping = true;
    impl_->changed.notify_all();
  }
  if (impl_->control.joinable()) impl_->control.join();
  const Status why = unavailable("the coordinator is shutting down");
  impl_->stop_pipeline(why);
  impl_->service->end_all(why);
  if (impl_->server) impl_->server->shutdown(kShutdownGrace);
}

}  // namespace strata::coordinator
