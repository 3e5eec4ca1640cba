#include "coordinator/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <stop_token>
#include <thread>
#include <utility>

#include "backends/remote/remote_stage.h"
#include "backends/remote/stream_gate.h"
#include "backends/remote/token.h"
#include "backends/remote/weights_service.h"
#include "coordinator/cluster_service.h"
#include "coordinator/intake.h"
#include "coordinator/state_folder.h"
#include "coordinator/token_rate.h"
#include "runtime/base/base_name.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_pool.h"
#include "runtime/base/thread_start.h"
#include "runtime/base/work_thread.h"

namespace strata::coordinator {
namespace {

using remote::PipelineReceiver;
using remote::RemoteStage;

constexpr auto kShutdownGrace = std::chrono::milliseconds(500);
constexpr auto kHeadTimeout = std::chrono::milliseconds(3000);
// Heads to connect to: one, and those of epochs that have ended meanwhile.
constexpr size_t kDialsMax = 64;
// The first step's token, and one more that takes the first from the tail as every later one does.
constexpr uint32_t kProofTokens = 2;
constexpr const char* kStopping = "the coordinator is shutting down";

// A prompt of a megabyte takes a few tenths of a second to become tokens: one more thread at least
// goes on with others, and most cores stay with who else needs them.
uint32_t intake_threads() {
  return static_cast<uint32_t>(std::clamp(usable_core_count() / 4, 2, 4));
}

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
  bool is_stall = false;  // the engine noticed
};
struct HeadEvent {
  StartPipeline start;
  Result<std::shared_ptr<StepSink>> head;
};
// A step has gone round.
struct ProofEvent {
  uint64_t epoch;
};
struct ReplanEvent {
  ReplanListener listener;
};
using ControlEvent = std::variant<HelloEvent, MessageEvent, StreamEndEvent, PipelineFailureEvent,
                                  HeadEvent, ProofEvent, ReplanEvent>;

}  // namespace

struct Coordinator::Impl final : ClusterHandler, remote::PipelineHandler {
  Impl(CoordinatorOptions given, std::unique_ptr<StateFolder> folder)
      : options(std::move(given)),
        state(options.cluster),
        state_folder(std::move(folder)),
        snapshot(state.status(clock.now())),
        snapshot_obstacle(state.obstacle()),
        engine(options.engine) {}

  // ClusterHandler, from gRPC's threads.
  void on_hello(MemberId id, remote::Hello hello, const std::string& grpc_peer) override {
    post(HelloEvent{id, std::move(hello), grpc_peer});
  }
  void on_message(MemberId id, remote::FromWorker message) override {
    post(MessageEvent{id, std::move(message)});
  }
  void on_stream_end(MemberId id, const Status& why) override { post(StreamEndEvent{id, why}); }
  RequestId on_generate(remote::GenerateRequest request, AnswerListener listener) override {
    const RequestId id = engine.reserve_id();
    intake.add(id, std::move(request), std::move(listener));
    return id;
  }
  void on_cancel(RequestId id) override { intake.cancel(id); }
  remote::ClusterStatus on_status() override { return status(); }
  void on_replan(ReplanListener listener) override {
    {
      const MutexLock lock(mutex);
      if (!stopping) {
        events.push_back(ReplanEvent{std::move(listener)});
        changed.notify_all();
        return;
      }
    }
    listener(kStopping);
  }

  // PipelineHandler, from the acceptor's thread.
  Status on_stream_open(const remote::StreamCaller& caller) override {
    if (caller.method == remote::StreamMethod::results) return gate.admit(caller);
    return failed_precondition(
        fmt::format("{} has steps for the coordinator, which has no stage", caller.name));
  }
  Status on_large_frame(const remote::StreamCaller& caller, uint64_t) override {
    return remote::check_epoch(caller.epoch, pipeline_epoch.load());
  }
  Status on_step(const std::string& from, StepFrame) override {
    return failed_precondition(
        fmt::format("{} sent a step to the coordinator, which has no stage", from));
  }
  Status on_result(const std::string& from, StepResult result) override {
    TRY(remote::check_epoch(result.epoch, pipeline_epoch.load()));
    if (result.status.ok() && !is_tail(from)) {
      return failed_precondition(
          fmt::format("{} sent the result of step {}, and is not the tail", from, result.step_id));
    }
    if (options.pipeline_user.sink != nullptr) {
      options.pipeline_user.sink->deliver(std::move(result));
    } else {
      engine.deliver(std::move(result));
    }
    return ok_status();
  }
  // A tail that has lost its stream says so, and one that has died loses its membership.
  void on_stream_closed(const remote::StreamCaller&, const Status&) override {}
  bool is_tail(const std::string& node) const {
    const MutexLock lock(mutex);
    return node == tail;
  }

  void post(ControlEvent event);
  void run_control() noexcept;
  bool wait_for_events(std::deque<ControlEvent>& taken);
  void handle(ControlEvent event, ClusterActions& actions);
  void carry_out(ClusterActions actions);
  void save_epoch(uint64_t epoch);
  void expect_streams(const ExpectStreams& streams);
  PipelineShape shape_of(const StartPipeline& start) const;
  void refuse_replans();
  bool leads_here(const remote::Address& address) const;
  Result<std::shared_ptr<StepSink>> connect_head(const StartPipeline& start,
                                                 remote::PeerLostCallback lost) const;
  void dial_head(const StartPipeline& start);
  void attach_pipeline(HeadEvent event);
  void send_proof(uint64_t epoch);
  void pipeline_ready(const PipelineReady& ready);
  void stop_pipeline(const Status& why);
  void publish();
  void note(const Note& line) const {
    if (options.on_note) options.on_note(line);
  }
  remote::ClusterStatus status() const;

  const CoordinatorOptions options;
  const SystemClock clock;
  std::stop_source stop_source;
  ClusterState state;                         // the control thread's: planning takes its time
  std::unique_ptr<StateFolder> state_folder;  // the control thread's; may be null

  mutable Mutex mutex;
  CondVar changed;  // events, readiness, stopping
  std::deque<ControlEvent> events STRATA_GUARDED_BY(mutex);
  // What `state` said when the control thread last had a look, and when that was.
  remote::ClusterStatus snapshot STRATA_GUARDED_BY(mutex);
  Status snapshot_obstacle STRATA_GUARDED_BY(mutex);
  TimePoint snapshot_at STRATA_GUARDED_BY(mutex);
  remote::Address own_address STRATA_GUARDED_BY(mutex);  // once it listens
  bool pipeline_stands STRATA_GUARDED_BY(mutex) = false;
  std::string tail STRATA_GUARDED_BY(mutex);  // of the last plan
  bool stopping STRATA_GUARDED_BY(mutex) = false;
  mutable TokenRate rate STRATA_GUARDED_BY(mutex);

  // After what their threads call back into.
  EngineLoop engine;
  std::unique_ptr<Generator> generator;
  std::unique_ptr<ClusterService> service;
  std::unique_ptr<remote::WeightsService> weights;  // null without tensor digests
  remote::StreamGate gate;
  std::unique_ptr<PipelineReceiver> receiver;
  std::unique_ptr<remote::RpcServer> server;
  std::atomic<uint64_t> pipeline_epoch = 0;

  Intake intake{
      {.threads = intake_threads()},
      {.start = [this](const remote::GenerateRequest& request, AnswerListener listener,
                       RequestId id) { generator->start(request, std::move(listener), id); },
       .cancel = [this](RequestId id) { generator->cancel(id); }}};
  WorkThread dialer{kDialsMax};  // the control thread waits for nobody
  std::thread control;
};

void Coordinator::Impl::post(ControlEvent event) {
  const MutexLock lock(mutex);
  events.push_back(std::move(event));
  changed.notify_all();
}

void Coordinator::Impl::handle(ControlEvent event, ClusterActions& actions) {
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
    if (leads_here(*address)) {
      actions.push_back(EndStream{
          hello->id, invalid_argument(fmt::format("worker '{}' gives {} as its address, which is "
                                                  "the coordinator's own",
                                                  hello->hello.name, address->text()),
                                      "let the worker --listen at a port of its own")});
      return;
    }
    state.on_hello(hello->id, hello->hello, address->text(), now, actions);
  } else if (auto* message = std::get_if<MessageEvent>(&event)) {
    state.on_message(message->id, message->message, now, actions);
  } else if (auto* end = std::get_if<StreamEndEvent>(&event)) {
    state.on_stream_end(end->id, end->why, now, actions);
  } else if (auto* failure = std::get_if<PipelineFailureEvent>(&event)) {
    if (failure->is_stall) {
      state.on_pipeline_stall(failure->epoch, failure->why, now, actions);
    } else {
      state.on_pipeline_failure(failure->epoch, failure->why, now, actions);
    }
  } else if (auto* head = std::get_if<HeadEvent>(&event)) {
    attach_pipeline(std::move(*head));
  } else if (auto* proof = std::get_if<ProofEvent>(&event)) {
    state.on_pipeline_proven(proof->epoch, now, actions);
  } else if (auto* replan = std::get_if<ReplanEvent>(&event)) {
    replan->listener(state.replan(now, actions));
  }
}

// What only this process can be reached at; a host's other addresses are found out by the first
// step, which comes back here.
bool Coordinator::Impl::leads_here(const remote::Address& address) const {
  const MutexLock lock(mutex);
  if (address.port != own_address.port) return false;
  return address.host == own_address.host || (own_address.is_wildcard() && address.is_loopback());
}

// Until an event comes or the state wants to look again. False once the coordinator stops.
bool Coordinator::Impl::wait_for_events(std::deque<ControlEvent>& taken) {
  const std::optional<TimePoint> wakeup = state.next_wakeup();
  const MutexLock lock(mutex);
  while (events.empty() && !stopping) {
    if (!wakeup) {
      changed.wait(mutex);
    } else if (!changed.wait_until(mutex, *wakeup)) {
      break;
    }
  }
  taken = std::exchange(events, {});
  return !stopping;
}

// Calls that nobody answers would hold up the server's end. Requires: no control thread.
void Coordinator::Impl::refuse_replans() {
  std::deque<ControlEvent> left;
  {
    const MutexLock lock(mutex);
    left = std::exchange(events, {});
  }
  for (ControlEvent& event : left) {
    if (auto* replan = std::get_if<ReplanEvent>(&event)) replan->listener(kStopping);
  }
}

void Coordinator::Impl::publish() {
  const TimePoint now = clock.now();
  remote::ClusterStatus status = state.status(now);
  const MutexLock lock(mutex);
  snapshot = std::move(status);
  snapshot_obstacle = state.obstacle();
  snapshot_at = now;
}

void Coordinator::Impl::run_control() noexcept {
  Status told;  // what requests are refused with while there is no pipeline
  std::deque<ControlEvent> taken;
  while (wait_for_events(taken)) {
    ClusterActions actions;
    for (ControlEvent& event : taken) handle(std::move(event), actions);
    const EngineCounters counters = engine.counters();
    // Who uses the pipeline without the engine says nothing of being done.
    const bool is_serving =
        counters.live + counters.queued > 0 || options.pipeline_user.started != nullptr;
    state.set_serving(is_serving, clock.now());
    state.on_tick(clock.now(), actions);
    const Status obstacle = state.obstacle();
    publish();
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
    } else if (const auto* save = std::get_if<SaveEpoch>(&action)) {
      save_epoch(save->epoch);
    } else if (const auto* end = std::get_if<EndStream>(&action)) {
      service->end(end->member, end->why);
    } else if (const auto* streams = std::get_if<ExpectStreams>(&action)) {
      expect_streams(*streams);
    } else if (const auto* start = std::get_if<StartPipeline>(&action)) {
      dial_head(*start);
    } else if (const auto* ready = std::get_if<PipelineReady>(&action)) {
      pipeline_ready(*ready);
    } else if (const auto* line = std::get_if<Note>(&action)) {
      note(*line);
    }
  }
}

// A disk that is full must not end the service: workers report the epochs that they have seen.
void Coordinator::Impl::save_epoch(uint64_t epoch) {
  if (!state_folder) return;
  if (const Status saved = state_folder->save_epoch(epoch); !saved.ok()) {
    note({.is_warning = true,
          .text = fmt::format("epoch {} is not kept for a restart: {}", epoch, saved.to_string())});
  }
}

void Coordinator::Impl::expect_streams(const ExpectStreams& streams) {
  gate.expect({.epoch = streams.epoch,
               .key = streams.key,
               .steps_from = {},
               .results_from = streams.stages});
  const MutexLock lock(mutex);
  tail = streams.stages.back();
}

PipelineShape Coordinator::Impl::shape_of(const StartPipeline& start) const {
  PipelineShape shape;
  shape.epoch = start.epoch;
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
  shape.outputs_max = options.cluster.max_outputs > 0 ? options.cluster.max_outputs : shape.slots;
  shape.token_allowance = start.plan.token_allowance();
  return shape;
}

Result<std::shared_ptr<StepSink>> Coordinator::Impl::connect_head(
    const StartPipeline& start, remote::PeerLostCallback lost) const {
  const remote::Address address =
      TRY(remote::parse_address(start.head_address, remote::AddressUse::dial));
  TRY(remote::check_exposure(address, options.insecure_network).with_context(start.head_name));
  return std::shared_ptr<StepSink>(
      TRY(RemoteStage::connect({.address = address,
                                .peer = start.head_name,
                                .caller = remote::kCoordinatorNode,
                                .token = options.token,
                                .cluster_id = options.cluster.cluster_id,
                                .epoch = start.epoch,
                                .stream_key = start.stream_key,
                                .connect_timeout = kHeadTimeout,
                                .stop = stop_source.get_token()},
                               std::move(lost))));
}

void Coordinator::Impl::dial_head(const StartPipeline& start) {
  const uint64_t epoch = start.epoch;
  const auto fail = [this, epoch](const Status& why) { post(PipelineFailureEvent{epoch, why}); };
  const bool taken = dialer.post(
      [this, start, fail] { post(HeadEvent{.start = start, .head = connect_head(start, fail)}); });
  if (!taken) fail(resource_exhausted("too many stages are being connected to"));
}

void Coordinator::Impl::attach_pipeline(HeadEvent event) {
  const uint64_t epoch = event.start.epoch;
  if (epoch != state.epoch() || state.phase() != ClusterPhase::starting) return;
  if (!event.head.ok()) return post(PipelineFailureEvent{epoch, event.head.status()});
  const PipelineShape shape = shape_of(event.start);
  pipeline_epoch = epoch;
  std::shared_ptr<StepSink> sink = std::move(event.head).value();
  if (options.pipeline_user.started) {
    options.pipeline_user.started(shape, std::move(sink));
    post(ProofEvent{epoch});
  } else {
    engine.attach(shape, std::move(sink));
    send_proof(epoch);
  }
}

// A request of the coordinator's own, whose answer does not matter: that one comes shows that each
// stage reaches the next, and the tail the head and the coordinator. One that fails for what it
// holds has gone round as well; an end of the pipeline is told by whoever ends it.
void Coordinator::Impl::send_proof(uint64_t epoch) {
  Request request;
  request.prompt = {0};
  request.max_new_tokens = kProofTokens;
  request.sampling.temperature = 0;
  engine.submit(std::move(request), [this, epoch](const RequestEvent& event) {
    const auto* finish = std::get_if<RequestFinish>(&event);
    if (finish == nullptr || finish->status.code() == StatusCode::unavailable ||
        finish->status.code() == StatusCode::deadline_exceeded) {
      return;
    }
    post(ProofEvent{epoch});
  });
}

void Coordinator::Impl::pipeline_ready(const PipelineReady& ready) {
  const size_t stages = ready.nodes.size();
  note({.is_warning = false,
        .text = fmt::format("ready: {} stage{}, epoch {}", stages, stages == 1 ? "" : "s",
                            ready.epoch)});
  if (state_folder) {
    const Status saved = state_folder->save_pipeline({.model_digest = options.model_digest,
                                                      .workers = options.cluster.workers,
                                                      .nodes = ready.nodes});
    if (!saved.ok()) {
      note({.is_warning = true,
            .text = fmt::format("a restarted coordinator will wait for all workers: {}",
                                saved.to_string())});
    }
  }
  const MutexLock lock(mutex);
  pipeline_stands = true;
  changed.notify_all();
}

void Coordinator::Impl::stop_pipeline(const Status& why) {
  if (options.pipeline_user.stopped) {
    options.pipeline_user.stopped(why);
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
  remote::ClusterStatus status = snapshot;
  const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - snapshot_at);
  for (remote::NodeStatus& node : status.nodes) {
    node.last_heartbeat_ms += static_cast<uint32_t>(age.count());
  }
  status.live_sequences = counters.live;
  status.waiting_sequences = counters.queued;
  status.measured_tokens_per_s = rate.look(counters.tokens_sampled, now);
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
  std::unique_ptr<StateFolder> folder;
  if (!options.state_folder.empty()) folder = TRY(StateFolder::open(options.state_folder));
  options.cluster.cluster_id = folder ? folder->cluster_id() : random_cluster_id();
  options.cluster.last_epoch = folder ? folder->epoch() : 0;
  if (folder && folder->pipeline().model_digest == options.model_digest &&
      folder->pipeline().workers == options.cluster.workers) {
    options.cluster.last_nodes = folder->pipeline().nodes;
  }
  options.cluster.membership.cluster_id = options.cluster.cluster_id;
  options.cluster.model = {.base_name = base_name(options.file->path()),
                           .digest = options.model_digest};
  auto impl = std::make_unique<Impl>(std::move(options), std::move(folder));
  Impl& self = *impl;
  self.generator =
      TRY(Generator::create(self.options.file, self.engine, self.options.request_timeout));
  self.service = ClusterService::create(self.options.token, self);
  self.receiver = std::make_unique<PipelineReceiver>(self.options.token, self);
  self.receiver->expect_cluster(self.options.cluster.cluster_id);
  self.engine.on_pipeline_failure([&self](uint64_t epoch, const Status& why) {
    self.post(PipelineFailureEvent{epoch, why, true});
  });
  TRY(start_thread(self.control, [&self] { self.run_control(); }));
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
  const MutexLock lock(self.mutex);
  self.own_address = self.server->address();
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
  return impl_->snapshot_obstacle;
}

remote::ClusterStatus Coordinator::status() const { return impl_->status(); }
Generator& Coordinator::generator() { return *impl_->generator; }
EngineLoop& Coordinator::engine() { return impl_->engine; }

void Coordinator::stop() {
  {
    const MutexLock lock(impl_->mutex);
    if (impl_->stopping) return;
    impl_->stopping = true;
    impl_->changed.notify_all();
  }
  impl_->stop_source.request_stop();
  impl_->intake.stop();
  impl_->dialer.stop();
  if (impl_->control.joinable()) impl_->control.join();
  impl_->refuse_replans();
  const Status why = unavailable(kStopping);
  impl_->stop_pipeline(why);
  impl_->service->end_all(why);
  if (impl_->server) impl_->server->shutdown(kShutdownGrace);
}

}  // namespace strata::coordinator
