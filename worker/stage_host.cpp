#include "worker/stage_host.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/heap.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"
#include "runtime/base/thread_start.h"
#include "runtime/model/hparams.h"
#include "runtime/model/stage_options.h"

namespace strata::worker {
namespace {

// Steps that may wait; the coordinator has a few per stage in flight.
constexpr uint32_t kStepsWaitingMax = 64;
// For each stream of an epoch; within the coordinator's patience for all of them.
constexpr std::chrono::milliseconds kConnectTimeout{3000};

uint64_t epoch_of(const remote::Command& command) {
  if (const auto* load = std::get_if<remote::LoadStage>(&command)) return load->epoch;
  if (const auto* start = std::get_if<remote::StartEpoch>(&command)) return start->epoch;
  if (const auto* unload = std::get_if<remote::Unload>(&command)) return unload->epoch;
  return 0;
}

}  // namespace

StageHost::StageHost(StageHostOptions options)
    : options_(std::move(options)),
      steps_([this](uint64_t epoch, const std::string& peer, const Status& why) {
        options_.emit(remote::PeerLost{epoch, peer, why});
      }) {}

Result<std::unique_ptr<StageHost>> StageHost::create(StageHostOptions options) {
  std::unique_ptr<StageHost> host(new StageHost(std::move(options)));
  TRY(start_thread(host->loader_, [self = host.get()] { self->run(); }));
  return host;
}

StageHost::~StageHost() { stop(); }

void StageHost::begin_session(const remote::Address& coordinator, const std::string& token,
                              const std::string& cluster_id) {
  auto session = std::make_shared<Session>();
  session->coordinator = coordinator;
  session->token = token;
  session->cluster_id = cluster_id;
  session->weights = remote::WeightsClient::create(coordinator, token, options_.name);
  const MutexLock lock(mutex_);
  session_ = std::move(session);
}

void StageHost::end_session() {
  const MutexLock lock(mutex_);
  jobs_.clear();
  session_.reset();
  current_.request_stop();
  end_wanted_ = true;
  changed_.notify_all();
}

bool StageHost::wait_ended(Duration timeout) {
  const TimePoint deadline = SystemClock().now() + timeout;
  const MutexLock lock(mutex_);
  while ((end_wanted_ || working_) && !stopping_) {
    if (!changed_.wait_until(mutex_, deadline)) break;
  }
  return !end_wanted_ && !working_ && !stopping_;
}

void StageHost::command(uint64_t command_id, remote::Command command) {
  const MutexLock lock(mutex_);
  const uint64_t epoch = epoch_of(command);
  // A load of an older epoch is of no use to anybody.
  if (epoch > last_epoch_) current_.request_stop();
  last_epoch_ = std::max(last_epoch_, epoch);
  jobs_.push_back({command_id, std::move(command)});
  changed_.notify_all();
}

void StageHost::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    jobs_.clear();
    current_.request_stop();
    changed_.notify_all();
  }
  if (loader_.joinable()) loader_.join();
  steps_.clear(0);
}

void StageHost::run() noexcept {
  for (;;) {
    Job job;
    std::stop_token stop;
    bool end = false;
    {
      const MutexLock lock(mutex_);
      working_ = false;
      changed_.notify_all();
      while (jobs_.empty() && !end_wanted_ && !stopping_) changed_.wait(mutex_);
      if (stopping_) break;
      working_ = true;
      end = end_wanted_;
      end_wanted_ = false;
      if (!end) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
        current_ = std::stop_source();
        stop = current_.get_token();
      }
    }
    if (end) {
      end_stage(0);
      drop_ready();
      return_free_heap();
      continue;
    }
    const remote::CommandDone done = carry_out(job, stop);
    // What a load read through, and what went with the stage before it, is free now: others may
    // have it, and what is held is what is counted.
    return_free_heap();
    options_.emit(heartbeat());  // the figures of the new state go before the word of it
    options_.emit(done);
  }
  end_stage(0);
  ready_.reset();
  held_.reset();
}

remote::CommandDone StageHost::carry_out(const Job& job, const std::stop_token& stop) {
  remote::CommandDone done;
  done.command_id = job.command_id;
  done.epoch = epoch_of(job.command);
  uint64_t newest = 0;
  {
    const MutexLock lock(mutex_);
    newest = last_epoch_;
  }
  if (done.epoch < newest) {
    done.status = remote::check_epoch(done.epoch, newest);
  } else if (const auto* load_order = std::get_if<remote::LoadStage>(&job.command)) {
    done.status = load(*load_order, stop, done.memory);
  } else if (const auto* start_order = std::get_if<remote::StartEpoch>(&job.command)) {
    done.status = start(*start_order, stop);
  } else {
    end_stage(done.epoch);
    drop_ready();
    drop_weights();
  }
  if (!done.status.ok()) {
    log::warn("epoch {}: {}", done.epoch, done.status.to_string());
    done.status = done.status.with_context(options_.name);
  }
  const MutexLock lock(mutex_);
  progress_.reset();
  return done;
}

void StageHost::end_stage(uint64_t epoch) {
  const std::shared_ptr<RunningStage> running = steps_.clear(epoch);
  if (!running) return;
  {
    const MutexLock lock(mutex_);
    ending_ = running;
  }
  running->stage->stop();
  const MutexLock lock(mutex_);
  ending_.reset();
  steps_before_ += running->stage->counters().steps_done;
}

Result<StageOptions> StageHost::stage_options(const remote::LoadStage& order,
                                              const GgufFile& file) const {
  const Hparams hparams = TRY(read_hparams(file));
  if (order.range.end > hparams.n_layer) {
    return invalid_argument(fmt::format("{} of a model with {} layers",
                                        layer_range_text(order.range), hparams.n_layer));
  }
  if (order.blocks_per_group.size() != hparams.kv_groups.size()) {
    return invalid_argument(fmt::format("{} counts of KV blocks for a model with {} KV groups",
                                        order.blocks_per_group.size(), hparams.kv_groups.size()));
  }
  StageOptions stage;
  stage.range = order.range;
  stage.kv.type = TRY(kv_type_from_name(order.kv_type));
  for (const uint32_t blocks : order.blocks_per_group) {
    if (blocks > static_cast<uint32_t>(kContextMax)) {
      return invalid_argument(fmt::format("{} KV blocks are more than {}", blocks, kContextMax));
    }
    stage.kv.group_blocks.push_back(static_cast<int32_t>(blocks));
  }
  const auto bounded = [](uint32_t value) {
    return static_cast<int32_t>(std::min<uint32_t>(value, static_cast<uint32_t>(kContextMax)));
  };
  stage.max_batch_tokens = bounded(order.max_step_tokens);
  stage.max_outputs = bounded(order.max_outputs);
  stage.max_sequences = bounded(order.max_sequences);
  stage.max_context = bounded(order.context_tokens);
  stage.devices = options_.devices->devices();
  stage.backend.threads = static_cast<int>(order.threads > 0 ? order.threads : options_.threads);
  stage.backend.cpus = options_.cpus;
  stage.load.threads = stage.backend.threads;
  return stage;
}

Status StageHost::load(const remote::LoadStage& order, const std::stop_token& stop,
                       remote::StageMemory& memory) {
  const std::shared_ptr<Session> session = this->session();
  if (!session) return cancelled("the coordinator is gone");
  end_stage(order.epoch);
  drop_ready();
  const uint64_t received_before = options_.store->received_bytes();
  StageOptions options;
  bool is_kept = held_ && held_->digest == order.model.digest && held_->range == order.range;
  if (is_kept) {
    Result<StageOptions> placed = place(order, *held_->file, &*held_);
    // Over several devices, other caches may ask for other places of the weights.
    const bool may_move = placed.status().code() == StatusCode::resource_exhausted &&
                          options_.devices->devices().size() > 1;
    if (!placed.ok() && !may_move) return placed.status();
    is_kept = placed.ok();
    if (is_kept) options = std::move(placed).value();
  }
  if (!is_kept) options = TRY(load_weights(order, *session, stop));
  if (stop.stop_requested()) return cancelled("the load was cancelled");
  std::unique_ptr<StageModel> model = TRY(StageModel::create(held_->file, held_->weights, options));
  memory.weights_bytes = held_->weights->size_bytes();
  memory.cache_bytes = model->kv_cache().size_bytes();
  memory.compute_bytes = model->compute_bytes();
  memory.received_bytes = options_.store->received_bytes() - received_before;
  const uint64_t sum = memory.weights_bytes + memory.cache_bytes + memory.compute_bytes;
  log::info("loaded {} of {}: {}{}", layer_range_text(order.range), order.model.base_name,
            human_bytes(sum), is_kept ? " (weights kept)" : "");
  ready_ = Ready{std::move(options), std::move(model), order.stream_key};
  remote::StreamGate::Expected streams{.epoch = order.epoch,
                                       .key = order.stream_key,
                                       .steps_from = {order.steps_from},
                                       .results_from = {}};
  if (!order.results_from.empty()) streams.results_from = {order.results_from};
  steps_.expect(std::move(streams));
  const MutexLock lock(mutex_);
  used_bytes_ = sum;
  return ok_status();
}

std::vector<DeviceMemory> StageHost::usable_memory(const Held* held) const {
  const std::vector<Device*> devices = options_.devices->devices();
  std::vector<DeviceMemory> usable;
  for (size_t i = 0; i < devices.size(); ++i) {
    DeviceMemory memory = devices[i]->memory();
    // The only device's share is what the worker was given, whatever is free at the moment.
    if (devices.size() == 1) memory.free_bytes = options_.memory_limit_bytes;
    if (devices.size() > 1 && held != nullptr) memory.free_bytes += held->device_bytes[i];
    memory.free_bytes = std::min(memory.free_bytes, options_.memory_limit_bytes);
    memory.total_bytes = std::max(memory.total_bytes, memory.free_bytes);
    usable.push_back(memory);
  }
  return usable;
}

Result<StageOptions> StageHost::place(const remote::LoadStage& order, const GgufFile& file,
                                      const Held* held) const {
  StageOptions options = TRY(stage_options(order, file));
  options.device_memory = usable_memory(held);
  if (held != nullptr && options.devices.size() > 1) {
    options.layer_devices = held->layer_devices;
    options.head_device = held->head_device;
  }
  const std::string what =
      fmt::format("{} of {}", layer_range_text(order.range), order.model.base_name);
  TRY(assign_devices(file, options).with_context(what));
  const StageEstimate estimate = TRY(StageModel::estimate(file, options));
  if (estimate.total() > options_.memory_limit_bytes) {
    return resource_exhausted(
        fmt::format("{} need {} on {} devices, this worker may use {} in all", what,
                    human_bytes(estimate.total()), options.devices.size(),
                    human_bytes(options_.memory_limit_bytes)),
        "give it more with --memory, or add a worker");
  }
  return options;
}

// Of a stage that has ended; only its weights are still held.
void StageHost::drop_ready() {
  ready_.reset();
  const MutexLock lock(mutex_);
  used_bytes_ = held_ ? held_->weights->size_bytes() : 0;
}

void StageHost::drop_weights() {
  held_.reset();
  const MutexLock lock(mutex_);
  held_digest_.clear();
  used_bytes_ = 0;
}

Result<StageOptions> StageHost::load_weights(const remote::LoadStage& order, const Session& session,
                                             const std::stop_token& stop) {
  drop_weights();
  OpenedModel opened =
      TRY(options_.store->open(order.model, *session.weights, stop, order.range.has_head));
  const Hparams hparams = TRY(read_hparams(*opened.file));
  const StageOptions options = TRY(place(order, *opened.file, nullptr));
  const uint64_t received_before = options_.store->received_bytes();
  uint64_t percent_told = 0;
  LoadOptions load = options.load;
  load.stop = stop;
  load.progress = [&](const strata::LoadProgress& done) {
    const uint64_t percent =
        done.total_bytes == 0 ? 100 : done.loaded_bytes * 100 / done.total_bytes;
    if (percent >= percent_told + 20 || (percent == 100 && percent_told < 100)) {
      percent_told = percent;
      log::info("loading {}: {} % of {}", layer_range_text(order.range), percent,
                human_bytes(done.total_bytes));
    }
    const MutexLock lock(mutex_);
    // What has come of tensors that are not loaded yet is no part of what is loaded.
    const uint64_t received = options_.store->received_bytes() - received_before;
    progress_ = remote::LoadProgress{done.loaded_bytes, done.total_bytes,
                                     std::min(received, done.loaded_bytes)};
  };
  std::shared_ptr<Weights> weights = TRY(Weights::load(
      opened.file, hparams, order.range, stage_placement(options), opened.source.get(), load));
  Held held{.digest = order.model.digest,
            .range = order.range,
            .file = opened.file,
            .weights = std::move(weights),
            .layer_devices = options.layer_devices,
            .head_device = options.head_device,
            .device_bytes = {}};
  const StageEstimate estimate = TRY(StageModel::estimate(*opened.file, options));
  for (const DeviceAccount& account : estimate.devices) {
    held.device_bytes.push_back(account.weights_bytes());
  }
  held_ = std::move(held);
  const MutexLock lock(mutex_);
  held_digest_ = order.model.digest;
  held_range_ = order.range;
  used_bytes_ = held_->weights->size_bytes();
  return options;
}

Status StageHost::start(const remote::StartEpoch& order, const std::stop_token& stop) {
  end_stage(order.epoch);
  if (!ready_) {
    return failed_precondition(fmt::format("epoch {} begins, but no stage is loaded", order.epoch));
  }
  const LayerRange range = ready_->options.range;
  if (range.has_head == !order.next.address.empty()) {
    return invalid_argument(fmt::format("start_epoch: {} with{} a next stage",
                                        layer_range_text(range),
                                        order.next.address.empty() ? "out" : ""));
  }
  auto running = std::make_shared<RunningStage>();
  running->epoch = order.epoch;
  TRY(open_streams(order, stop, *running));
  if (!ready_->model) {
    ready_->model = TRY(StageModel::create(held_->file, held_->weights, ready_->options));
  }
  running->stage = TRY(
      LocalStage::create(std::move(ready_->model),
                         {.name = fmt::format("{} ({})", options_.name, layer_range_text(range)),
                          .epoch = order.epoch,
                          .slots_max = static_cast<uint32_t>(ready_->options.max_sequences),
                          .queue_max = kStepsWaitingMax,
                          .tokenizer_file = held_->file}));
  LocalStage::Wiring wiring;
  wiring.next = running->next.get();
  // The head first: it waits for the token, the coordinator only shows it.
  if (range.has_head && range.has_embedding) {
    wiring.sinks.push_back(&running->stage->token_sink());
  } else if (running->head) {
    wiring.sinks.push_back(running->head.get());
  }
  wiring.sinks.push_back(running->coordinator.get());
  TRY(running->stage->connect(std::move(wiring)));
  steps_.set(std::move(running));
  log::info("epoch {}: stage {} of {}{}", order.epoch, order.stage_index + 1, order.stage_count,
            order.next.address.empty() ? "" : fmt::format(", next is {}", order.next.node));
  return ok_status();
}

Status StageHost::open_streams(const remote::StartEpoch& order, const std::stop_token& stop,
                               RunningStage& running) {
  const std::shared_ptr<Session> session = this->session();
  if (!session) return cancelled("the coordinator is gone");
  const auto options_for = [&](const remote::Peer& peer) -> Result<remote::RemoteOptions> {
    remote::RemoteOptions remote_options;
    remote_options.address = TRY(remote::parse_address(peer.address, remote::AddressUse::dial));
    TRY(remote::check_exposure(remote_options.address, options_.insecure_network));
    remote_options.peer = peer.node;
    remote_options.caller = options_.name;
    remote_options.token = session->token;
    remote_options.cluster_id = session->cluster_id;
    remote_options.epoch = order.epoch;
    remote_options.stream_key = ready_->stream_key;
    remote_options.connect_timeout = kConnectTimeout;
    remote_options.stop = stop;
    return remote_options;
  };
  // Whom this worker cannot reach is told by name, ahead of the command's answer.
  const auto open = [&](const remote::Peer& peer, auto connect) -> decltype(connect({}, {})) {
    const remote::RemoteOptions to_peer = TRY(options_for(peer));
    auto stream = connect(to_peer, lost_callback(order.epoch, peer.node));
    if (!stream.ok() && !stop.stop_requested()) {
      options_.emit(remote::PeerLost{order.epoch, peer.node, stream.status()});
    }
    return stream;
  };
  const remote::Peer coordinator{remote::kCoordinatorNode, session->coordinator.text()};
  running.coordinator = TRY(open(coordinator, remote::RemoteResults::connect));
  if (!order.next.address.empty()) {
    running.next = TRY(open(order.next, remote::RemoteStage::connect));
  }
  if (!order.head.address.empty()) {
    running.head = TRY(open(order.head, remote::RemoteResults::connect));
  }
  return ok_status();
}

remote::PeerLostCallback StageHost::lost_callback(uint64_t epoch, std::string peer) const {
  return [this, epoch, peer = std::move(peer)](const Status& why) {
    options_.emit(remote::PeerLost{epoch, peer, why});
  };
}

std::shared_ptr<StageHost::Session> StageHost::session() const {
  const MutexLock lock(mutex_);
  return session_;
}

remote::Heartbeat StageHost::heartbeat() const {
  remote::Heartbeat beat;
  std::shared_ptr<RunningStage> running = steps_.running();
  const MutexLock lock(mutex_);
  if (!running) running = ending_;
  beat.epoch = last_epoch_;
  beat.steps_done = steps_before_;
  if (running) {
    const StageCounters counters = running->stage->counters();
    beat.steps_done += counters.steps_done;
    beat.progress = counters.progress;
    beat.step = counters.step_id;
    beat.step_tokens = counters.step_tokens;
    beat.busy_ns = counters.busy_ns;
    beat.tokens_done = counters.tokens_done;
    beat.positions_read = counters.positions_read;
    if (counters.awaiting_token) {
      beat.activity = remote::StageActivity::awaiting_token;
    } else if (counters.has_step) {
      beat.activity = remote::StageActivity::computing;
    }
  } else {
    // A load that waits for one large tensor moves as well.
    beat.progress = options_.store->received_bytes();
  }
  beat.used_bytes = used_bytes_;
  beat.load = progress_;
  for (const Device* device : options_.devices->devices()) {
    beat.free_bytes += device->memory().free_bytes;
  }
  return beat;
}

std::pair<std::string, LayerRange> StageHost::held() const {
  const MutexLock lock(mutex_);
  return {held_digest_, held_range_};
}

uint64_t StageHost::last_epoch() const {
  const MutexLock lock(mutex_);
  return last_epoch_;
}

}  // namespace strata::worker
