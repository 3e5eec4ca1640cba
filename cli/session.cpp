#include "cli/session.h"

#include <fmt/format.h>

#include <thread>

#include "cli/local_engine.h"
#include "coordinator/client.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace strata::cli {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(5);
constexpr auto kStatusInterval = std::chrono::milliseconds(200);

class LocalSession final : public Session {
 public:
  explicit LocalSession(std::unique_ptr<LocalEngine> engine) : engine_(std::move(engine)) {}

  Status generate(const remote::GenerateRequest& request,
                  const std::function<void(const remote::GenerateEvent&)>& event) override {
    struct Outcome {
      Mutex mutex;
      CondVar ended;
      bool done = false;
      Status status;
    };
    const auto outcome = std::make_shared<Outcome>();
    const auto finish = [outcome](const Status& status) {
      const MutexLock lock(outcome->mutex);
      outcome->done = true;
      outcome->status = status;
      outcome->ended.notify_all();
    };
    id_ = engine_->generator().start(request, [&event, finish](coordinator::AnswerEvent answer) {
      if (auto* status = std::get_if<Status>(&answer)) return finish(*status);
      if (auto* started = std::get_if<remote::GenerateStarted>(&answer)) event(*started);
      if (auto* token = std::get_if<remote::GenerateToken>(&answer)) event(*token);
      if (auto* finished = std::get_if<remote::GenerateFinished>(&answer)) {
        event(*finished);
        finish(ok_status());
      }
    });
    const MutexLock lock(outcome->mutex);
    while (!outcome->done) outcome->ended.wait(outcome->mutex);
    return outcome->status;
  }
  void cancel() override { engine_->generator().cancel(id_); }

 private:
  std::unique_ptr<LocalEngine> engine_;
  std::atomic<coordinator::RequestId> id_ = 0;
};

class RemoteSession final : public Session {
 public:
  explicit RemoteSession(std::unique_ptr<coordinator::Client> client)
      : client_(std::move(client)) {}
  Status generate(const remote::GenerateRequest& request,
                  const std::function<void(const remote::GenerateEvent&)>& event) override {
    return client_->generate(request, event);
  }
  void cancel() override { client_->cancel(); }

 private:
  std::unique_ptr<coordinator::Client> client_;
};

// A cluster that has just been started needs a moment; one that lost a worker is an error at once.
Status wait_until_ready(coordinator::Client& client, uint32_t wait_s, Terminal& terminal,
                        Signals& signals) {
  const TimePoint deadline = SystemClock().now() + std::chrono::seconds(wait_s);
  std::string shown;
  while (true) {
    const remote::ClusterStatus status = TRY(client.status());
    if (status.state == "ready") return ok_status();
    const bool is_forming = status.state == "waiting" || status.state == "loading";
    if (!is_forming || SystemClock().now() >= deadline) {
      return unavailable(status.detail.empty() ? "the cluster is not ready" : status.detail,
                         "strata ps shows its nodes");
    }
    if (status.detail != shown) terminal.line(terminal.dim("waiting: " + status.detail));
    shown = status.detail;
    if (signals.wait_for(kStatusInterval)) return cancelled("interrupted");
  }
}

}  // namespace

void add_session_options(CLI::App& command, SessionOptions& options) {
  add_model_options(command, options.model, "f16");
  command.get_option("--model")->required(false);
  add_cluster_address_options(command, options.cluster);
  command.add_option(
      "--ctx", options.context,
      "Most tokens of prompt and answer together (default: the model's, up to 4096)");
  command
      .add_option("--wait", options.wait_s, "Seconds to wait for a cluster that is still forming")
      ->capture_default_str();
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options, Terminal& terminal,
                                               Signals& signals) {
  const bool has_model = !options.model.path.empty();
  const bool has_coordinator = !options.cluster.coordinator.empty();
  if (has_model == has_coordinator) {
    return invalid_argument(
        has_model ? "both -m and --coordinator are given" : "neither -m nor --coordinator is given",
        "-m FILE runs a model here, --coordinator HOST:PORT asks a cluster");
  }
  if (has_model) {
    std::unique_ptr<LocalEngine> engine = TRY(
        LocalEngine::open({.model = options.model, .context = options.context}, terminal, signals));
    return std::unique_ptr<Session>(std::make_unique<LocalSession>(std::move(engine)));
  }
  const remote::Address address =
      TRY(remote::parse_address(options.cluster.coordinator, remote::AddressUse::dial));
  const std::string token = TRY(read_token(options.cluster.token, false));
  std::unique_ptr<coordinator::Client> client =
      TRY(coordinator::Client::connect(address, token, kConnectTimeout));
  TRY(wait_until_ready(*client, options.wait_s, terminal, signals));
  return std::unique_ptr<Session>(std::make_unique<RemoteSession>(std::move(client)));
}

}  // namespace strata::cli
