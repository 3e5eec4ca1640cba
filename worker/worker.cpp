#include "worker/worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "backends/backends.h"
#include "backends/remote/remote_stage.h"
#include "runtime/base/clock.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/random.h"
#include "runtime/base/thread_pool.h"
#include "worker/hardware_probe.h"
#include "worker/node_service.h"
#include "worker/stage_host.h"

namespace strata::worker {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBackoffFirst{200};
constexpr milliseconds kBackoffMax{2000};
// How long the last epoch's stage may take to end before this worker waits with joining again.
constexpr milliseconds kStageEnd{1000};
// A failure that goes on is told again so often.
constexpr std::chrono::seconds kTellAgain{30};
// A name may still be taken by this worker's own dead predecessor, until its loss is noticed.
constexpr std::chrono::seconds kNamePatience{6};

constexpr size_t kIdentityBytes = 16;

// Whether trying again may help.
bool is_refusal(const Status& status) {
  switch (status.code()) {
    case StatusCode::unauthenticated:
    case StatusCode::permission_denied:
    case StatusCode::failed_precondition:
    case StatusCode::invalid_argument:
    case StatusCode::already_exists:
    case StatusCode::unimplemented:
      return true;
    default:
      return false;
  }
}

class WorkerImpl final : public Worker {
 public:
  WorkerImpl(const WorkerOptions& options, std::string identity)
      : options_(options),
        identity_(std::move(identity)),
        store_({options.model_folders, options.cache_folder,
                static_cast<int>(std::max(1u, options.threads))}) {}
  ~WorkerImpl() override { end_serving(); }

  Status probe() {
    TRY(register_all(registry_, {options_.isa}));
    const ThreadPins pins = TRY(choose_pins(
        {.mode = options_.pin, .threads = static_cast<int>(options_.threads), .pools = 1}));
    ProbeRequest request;
    request.threads = static_cast<int>(options_.threads);
    request.cpus = pins.cpus;
    request.speed = options_.speed;
    request.isa = options_.isa;
    request.stop = options_.stop;
    request.memory_limit_bytes = options_.memory_limit_bytes;
    TRY(check_memory_limit());
    devices_ = TRY(probe_devices(registry_, request));
    host_id_ = host_id();
    memory_is_stated_ = options_.memory_limit_bytes != 0;
    if (!memory_is_stated_) {
      for (const remote::DeviceReport& device : devices_) {
        options_.memory_limit_bytes += device.memory.free_bytes / 10 * 9;
      }
    }
    for (const remote::DeviceReport& device : devices_) {
      log::info("{} ({}), {} threads, {} of memory to use, reads {}/s", device.name,
                device.description, options_.threads, human_bytes(options_.memory_limit_bytes),
                human_bytes(static_cast<uint64_t>(device.speed.read_bytes_per_s)));
    }
    log::info("{}", pins.text);
    TRY(remote::check_rpc_threads());
    StageHostOptions host;
    host.name = options_.name;
    host.threads = options_.threads;
    host.cpus = pins.cpus;
    host.memory_limit_bytes = options_.memory_limit_bytes;
    host.insecure_network = options_.insecure_network;
    host.devices = &registry_;
    host.store = &store_;
    host.emit = [this](const remote::FromWorker& message) { emit(message); };
    host_ = TRY(StageHost::create(std::move(host)));
    return ok_status();
  }

  Status run() override {
    milliseconds backoff = kBackoffFirst;
    while (!is_stopping()) {
      const Status ended = serve_once();
      host_->end_session();
      if (is_stopping()) break;
      if (was_member_) {
        log::warn("{}; waiting for it to come back", ended.to_string());
        was_member_ = false;
        told_ = ended;
        told_at_ = clock_.now();
        backoff = kBackoffFirst;
      } else if (is_final(ended)) {
        end_serving();
        return ended;
      } else {
        tell(ended);
      }
      wait(backoff);
      backoff = std::min(backoff * 2, kBackoffMax);
    }
    end_serving();
    log::info("left: {}", stop_reason());
    return ok_status();
  }

  void stop(const std::string& reason) override {
    std::shared_ptr<CoordinatorLink> link;
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      stopping_ = true;
      stop_.request_stop();
      reason_ = reason;
      link = link_;
      changed_.notify_all();
    }
    if (link) link->leave(reason);
  }

 private:
  // What a person stated, against what there is.
  Status check_memory_limit() const {
    const uint64_t stated = options_.memory_limit_bytes;
    uint64_t total = 0;
    uint64_t free = 0;
    for (const Device* device : registry_.devices()) {
      total += device->memory().total_bytes;
      free += device->memory().free_bytes;
    }
    if (stated > total) {
      return invalid_argument(
          fmt::format("--memory {} is more than the {} that this process may use",
                      human_bytes(stated), human_bytes(total)),
          "state what the machine, its control groups and ulimit -v allow, or leave --memory out");
    }
    if (stated > free) {
      log::warn("--memory {} is more than the {} that are free now", human_bytes(stated),
                human_bytes(free));
    }
    return ok_status();
  }

  // From finding the token to the end of one membership; why it ended.
  Status serve_once() {
    if (!host_->wait_ended(kStageEnd)) {
      return unavailable("a step of the last epoch is still being computed here",
                         "if that goes on, the stage hangs: start this worker anew");
    }
    const std::string token = TRY(options_.read_token());
    TRY(serve_with(token));
    LinkOptions link_options;
    link_options.coordinator = options_.coordinator;
    link_options.token = token;
    link_options.name = options_.name;
    link_options.stop = stop_.get_token();
    link_options.heartbeat = [this] { return host_->heartbeat(); };
    std::shared_ptr<CoordinatorLink> link =
        TRY(CoordinatorLink::join(link_options, [this] { return hello(); }));
    TRY(remote::check_versions(link->welcome().version, remote::kProtocolVersion));
    was_member_ = true;
    name_taken_since_.reset();
    cluster_id_ = link->welcome().cluster_id;
    receiver_->expect_cluster(cluster_id_);
    host_->begin_session(options_.coordinator, token, cluster_id_);
    log::info("joined the coordinator at {}", options_.coordinator.text());
    {
      const MutexLock lock(mutex_);
      link_ = link;
      if (stopping_) link->leave(reason_);
    }
    const Status ended = link->run([this](remote::ToWorker message) { take(std::move(message)); });
    const MutexLock lock(mutex_);
    link_.reset();
    return ended;
  }

  void take(remote::ToWorker message) {
    if (!std::holds_alternative<remote::Welcome>(message.command)) {
      host_->command(message.command_id, std::move(message.command));
    }
  }

  // Listens, with this token; anew if it is another than before.
  Status serve_with(const std::string& token) {
    if (server_ && token == token_) return ok_status();
    end_serving();
    receiver_ = std::make_unique<remote::PipelineReceiver>(token, host_->handler());
    receiver_->expect_cluster(cluster_id_);
    remote::ServerOptions server;
    server.listen = options_.listen;
    server.insecure_network = options_.insecure_network;
    server.streams = receiver_->acceptor();
    server_ = TRY(remote::RpcServer::start(server));
    token_ = token;
    // The next server takes the same port, so that the address stays true.
    options_.listen.port = server_->address().port;
    log::info("listening on {}", server_->address().text());
    return ok_status();
  }

  void end_serving() {
    if (host_ && is_stopping()) host_->stop();
    if (server_) server_->shutdown(milliseconds(0));
    server_.reset();
    receiver_.reset();
  }

  remote::Hello hello() const {
    remote::Hello hello;
    hello.name = options_.name;
    hello.identity = identity_;
    hello.version = remote::kProtocolVersion;
    hello.listen_address = server_->address().text();
    hello.devices = devices_;
    hello.host_id = host_id_;
    hello.memory_limit_bytes = options_.memory_limit_bytes;
    hello.memory_is_stated = memory_is_stated_;
    hello.last_epoch = host_->last_epoch();
    hello.threads = options_.threads;
    hello.process_id = static_cast<uint64_t>(::getpid());
    hello.cluster_id = cluster_id_;
    std::tie(hello.held_model_digest, hello.held_range) = host_->held();
    return hello;
  }

  bool is_final(const Status& status) {
    if (status.code() == StatusCode::already_exists && server_) {
      if (!name_taken_since_) name_taken_since_ = clock_.now();
      return clock_.now() - *name_taken_since_ > kNamePatience;
    }
    return is_refusal(status);
  }

  // The first time, when it changes, and every half minute.
  void tell(const Status& status) {
    const bool again = told_ && told_->message() == status.message();
    if (again && clock_.now() - told_at_ < kTellAgain) return;
    told_ = status;
    told_at_ = clock_.now();
    log::info("not joined yet: {}", status.to_string());
  }

  void emit(const remote::FromWorker& message) {
    std::shared_ptr<CoordinatorLink> link;
    {
      const MutexLock lock(mutex_);
      link = link_;
    }
    if (link) link->send(message);
  }

  void wait(milliseconds time) {
    const TimePoint until = clock_.now() + time;
    const MutexLock lock(mutex_);
    while (!stopping_ && clock_.now() < until) changed_.wait_until(mutex_, until);
  }
  bool is_stopping() const {
    const MutexLock lock(mutex_);
    return stopping_;
  }
  std::string stop_reason() const {
    const MutexLock lock(mutex_);
    return reason_;
  }

  WorkerOptions options_;
  const std::string identity_;
  const SystemClock clock_;
  std::stop_source stop_;

  // Before the host: its threads report through them until it is gone.
  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<CoordinatorLink> link_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::string reason_ STRATA_GUARDED_BY(mutex_);

  DeviceRegistry registry_;
  std::vector<remote::DeviceReport> devices_;
  std::string host_id_;
  bool memory_is_stated_ = false;
  WeightStore store_;
  std::unique_ptr<StageHost> host_;
  std::string token_;
  std::string cluster_id_;  // of the last welcome
  std::unique_ptr<remote::PipelineReceiver> receiver_;
  std::unique_ptr<remote::RpcServer> server_;

  bool was_member_ = false;  // these four: run()'s
  std::optional<TimePoint> name_taken_since_;
  std::optional<Status> told_;
  TimePoint told_at_;
};

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(const WorkerOptions& options) {
  TRY(remote::check_node_name(options.name));
  TRY(remote::check_exposure(options.listen, options.insecure_network));
  TRY(remote::check_exposure(options.coordinator, options.insecure_network));
  WorkerOptions complete = options;
  if (complete.threads == 0) complete.threads = static_cast<uint32_t>(usable_core_count());
  auto worker = std::make_unique<WorkerImpl>(complete, random_hex(kIdentityBytes));
  TRY(worker->probe());
  return std::unique_ptr<Worker>(std::move(worker));
}

}  // namespace strata::worker
