#include "worker/stage_host.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/human.h"
#include "runtime/base/log.h"
#include "runtime/model/hparams.h"

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

Result<DType> kv_type_of(const std::string& name) {
  if (name == "f32") return DType::f32;
  if (name == "f16") return DType::f16;
  if (name == "q8_0") return DType::q8_0;
  if (name == "q4_0") return DType::q4_0;
  return invalid_argument(fmt::format("KV type '{}' is not f32, f16, q8_0 or q4_0", name));
}

}  // namespace

StageHost::StageHost(StageHostOptions options)
    : options_(std::move(options)),
      steps_([this](uint64_t epoch, const std::string& peer, const Status& why) {
        options_.emit(remote::PeerLost{epoch, peer, why});
      }),
      loader_([this] { run(); }) {}

StageHost::~StageHost() { stop(); }

void StageHost::begin_session(const remote::Address& coordinator, const std::string& token) {
  auto session = std::make_shared<Session>();
  session->coordinator = coordinator;
  session->token = token;
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
      while (jobs_.empty() && !end_wanted_ && !stopping_) changed_.wait(mutex_);
      if (stopping_) break;
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
      if (loaded_) loaded_->model.reset();
      continue;
    }
    options_.emit(carry_out(job, stop));
  }
  end_stage(0);
  loaded_.reset();
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
    done.status = start(*start_order);
  } else {
    end_stage(done.epoch);
    loaded_.reset();
    const MutexLock lock(mutex_);
    held_digest_.clear();
    used_bytes_ = 0;
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
  running->stage->stop();
  const MutexLock lock(mutex_);
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
  stage.kv.type = TRY(kv_type_of(order.kv_type));
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
  stage.max_sequences = bounded(order.max_sequences);
  stage.max_context = bounded(order.context_tokens);
  stage.devices = options_.devices->devices();
  stage.backend.threads = static_cast<int>(order.threads > 0 ? order.threads : options_.threads);
  stage.load.threads = stage.backend.threads;
  return stage;
}

Status StageHost::load(const remote::LoadStage& order, const std::stop_token& stop,
                       remote::StageMemory& memory) {
  const std::shared_ptr<Session> session = this->session();
  if (!session) return cancelled("the coordinator is gone");
  end_stage(order.epoch);
  if (loaded_) loaded_->model.reset();
  // Weights are missing after a load that failed or was cancelled.
  const bool same = loaded_ && loaded_->weights &&
                    loaded_->order.model.digest == order.model.digest &&
                    loaded_->order.range == order.range;
  std::unique_ptr<TensorSource> source;
  if (!same) {
    loaded_.reset();
    {
      const MutexLock lock(mutex_);
      held_digest_.clear();
      used_bytes_ = 0;
    }
    OpenedModel opened = TRY(options_.store->open(order.model, *session->weights, stop));
    loaded_.emplace();
    loaded_->file = std::move(opened.file);
    source = std::move(opened.source);
  }
  loaded_->order = order;
  loaded_->options = TRY(stage_options(order, *loaded_->file));
  const StageEstimate estimate = TRY(StageModel::estimate(*loaded_->file, loaded_->options));
  if (estimate.total() > options_.memory_limit_bytes) {
    return resource_exhausted(
        fmt::format("{} of {} need {}, this worker may use {}", layer_range_text(order.range),
                    order.model.base_name, human_bytes(estimate.total()),
                    human_bytes(options_.memory_limit_bytes)),
        "give it more with --memory, or add a worker");
  }
  const uint64_t received_before = options_.store->received_bytes();
  if (!same) {
    if (Status status = load_weights(*loaded_, source.get(), stop); !status.ok()) {
      loaded_.reset();
      return status;
    }
  }
  loaded_->model = TRY(StageModel::create(loaded_->file, loaded_->weights, loaded_->options));
  memory.weights_bytes = loaded_->weights->size_bytes();
  memory.cache_bytes = loaded_->model->kv_cache().size_bytes();
  memory.compute_bytes = estimate.compute;
  memory.received_bytes = options_.store->received_bytes() - received_before;
  log::info("loaded {} of {}: {}{}", layer_range_text(order.range), order.model.base_name,
            human_bytes(memory.weights_bytes + memory.cache_bytes + memory.compute_bytes),
            same ? " (weights kept)" : "");
  const MutexLock lock(mutex_);
  held_digest_ = order.model.digest;
  held_range_ = order.range;
  used_bytes_ = memory.weights_bytes + memory.cache_bytes + memory.compute_bytes;
  return ok_status();
}

Status StageHost::load_weights(Loaded& loaded, TensorSource* source, const std::stop_token& stop) {
  const Hparams hparams = TRY(read_hparams(*loaded.file));
  const std::vector<Device*>& devices = loaded.options.devices;
  Placement placement;
  placement.layers.assign(static_cast<size_t>(loaded.options.range.count()), devices.front());
  placement.input = devices.front();
  placement.output = devices.front();
  const uint64_t received_before = options_.store->received_bytes();
  uint64_t percent_told = 0;
  LoadOptions load = loaded.options.load;
  load.stop = stop;
  load.progress = [&](const strata::LoadProgress& done) {
    const uint64_t percent =
        done.total_bytes == 0 ? 100 : done.loaded_bytes * 100 / done.total_bytes;
    if (percent >= percent_told + 20 || (percent == 100 && percent_told < 100)) {
      percent_told = percent;
      log::info("loading {}: {} % of {}", layer_range_text(loaded.options.range), percent,
                human_bytes(done.total_bytes));
    }
    const MutexLock lock(mutex_);
    progress_ = remote::LoadProgress{done.loaded_bytes, done.total_bytes,
                                     options_.store->received_bytes() - received_before};
  };
  loaded.weights =
      TRY(Weights::load(loaded.file, hparams, loaded.options.range, placement, source, load));
  return ok_status();
}

Status StageHost::start(const remote::StartEpoch& order) {
  end_stage(order.epoch);
  if (!loaded_ || !loaded_->weights) {
    return failed_precondition(fmt::format("epoch {} begins, but no stage is loaded", order.epoch));
  }
  if (!loaded_->model) {
    loaded_->model = TRY(StageModel::create(loaded_->file, loaded_->weights, loaded_->options));
  }
  const LayerRange range = loaded_->options.range;
  if (range.has_head == !order.next.address.empty()) {
    return invalid_argument(fmt::format("start_epoch: {} with{} a next stage",
                                        layer_range_text(range),
                                        order.next.address.empty() ? "out" : ""));
  }
  auto running = std::make_shared<RunningStage>();
  running->epoch = order.epoch;
  TRY(open_streams(order, *running));
  running->stage = TRY(
      LocalStage::create(std::move(loaded_->model),
                         {.name = fmt::format("{} ({})", options_.name, layer_range_text(range)),
                          .epoch = order.epoch,
                          .slots_max = loaded_->order.max_sequences,
                          .queue_max = kStepsWaitingMax}));
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

Status StageHost::open_streams(const remote::StartEpoch& order, RunningStage& running) {
  const std::shared_ptr<Session> session = this->session();
  if (!session) return cancelled("the coordinator is gone");
  const auto options_for = [&](const remote::Peer& peer) -> Result<remote::RemoteOptions> {
    remote::RemoteOptions remote_options;
    remote_options.address = TRY(remote::parse_address(peer.address, remote::AddressUse::dial));
    TRY(remote::check_exposure(remote_options.address, options_.insecure_network));
    remote_options.peer = peer.node;
    remote_options.caller = options_.name;
    remote_options.token = session->token;
    remote_options.connect_timeout = kConnectTimeout;
    return remote_options;
  };
  const remote::Peer coordinator{"coordinator", session->coordinator.text()};
  const remote::RemoteOptions to_coordinator = TRY(options_for(coordinator));
  running.coordinator = TRY(
      remote::RemoteResults::connect(to_coordinator, lost_callback(order.epoch, coordinator.node)));
  if (!order.next.address.empty()) {
    const remote::RemoteOptions to_next = TRY(options_for(order.next));
    running.next =
        TRY(remote::RemoteStage::connect(to_next, lost_callback(order.epoch, order.next.node)));
  }
  if (!order.head.address.empty()) {
    const remote::RemoteOptions to_head = TRY(options_for(order.head));
    running.head =
        TRY(remote::RemoteResults::connect(to_head, lost_callback(order.epoch, order.head.node)));
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
  const std::shared_ptr<RunningStage> running = steps_.running();
  const MutexLock lock(mutex_);
  beat.epoch = last_epoch_;
  beat.steps_done = steps_before_;
  if (running) {
    const StageCounters counters = running->stage->counters();
    beat.steps_done += counters.steps_done;
    beat.busy = counters.computing;
  }
  beat.progress = beat.steps_done;
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
