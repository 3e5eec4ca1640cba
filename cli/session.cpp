#include "cli/session.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/signals.h"
#include "coordinator/client.h"
#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "serve/local_engine.h"

namespace strata::cli {
namespace {

constexpr auto kStatusInterval = std::chrono::milliseconds(200);

class LocalSession final : public Session {
 public:
  explicit LocalSession(std::unique_ptr<serve::LocalEngine> engine) : engine_(std::move(engine)) {}

  Status generate(const remote::GenerateRequest& request,
                  const std::function<void(const remote::GenerateEvent&)>& event,
                  std::stop_token stop) override {
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
    coordinator::Generator& generator = engine_->generator();
    const auto take = [&event, finish](coordinator::AnswerEvent answer) {
      if (auto* status = std::get_if<Status>(&answer)) return finish(*status);
      if (auto* started = std::get_if<remote::GenerateStarted>(&answer)) event(*started);
      if (auto* token = std::get_if<remote::GenerateToken>(&answer)) event(*token);
      if (auto* finished = std::get_if<remote::GenerateFinished>(&answer)) {
        event(*finished);
        finish(ok_status());
      }
    };
    const coordinator::RequestId id = generator.start(request, take);
    const std::stop_callback cancel(stop, [&generator, id] { generator.cancel(id); });
    const MutexLock lock(outcome->mutex);
    while (!outcome->done) outcome->ended.wait(outcome->mutex);
    return outcome->status;
  }

 private:
  std::unique_ptr<serve::LocalEngine> engine_;
};

class RemoteSession final : public Session {
 public:
  explicit RemoteSession(std::unique_ptr<coordinator::Client> client)
      : client_(std::move(client)) {}
  Status generate(const remote::GenerateRequest& request,
                  const std::function<void(const remote::GenerateEvent&)>& event,
                  std::stop_token stop) override {
    return client_->generate(request, event, stop);
  }

 private:
  std::unique_ptr<coordinator::Client> client_;
};

// A cluster that has just been started needs a moment; one that lost a worker is an error at once.
Status wait_until_ready(coordinator::Client& client, uint32_t wait_s, Terminal& terminal,
                        const std::stop_token& stop) {
  const TimePoint deadline = SystemClock().now() + std::chrono::seconds(wait_s);
  std::string shown;
  while (true) {
    const remote::ClusterStatus status = TRY(client.status(stop));
    if (status.state == "ready") {
      terminal.end_line();
      return ok_status();
    }
    const bool is_forming = status.state == "waiting" || status.state == "loading";
    if (!is_forming || SystemClock().now() >= deadline) {
      return unavailable(status.detail.empty() ? "the cluster is not ready" : status.detail,
                         "strata ps shows its nodes");
    }
    if (status.detail != shown) terminal.status("waiting: " + status.detail);
    shown = status.detail;
    if (wait_for_stop(stop, kStatusInterval)) return cancelled("interrupted");
  }
}

}  // namespace

void add_session_options(CLI::App& command, SessionOptions& options) {
  add_model_options(command, options.model, "f16");
  command.get_option("--model")->required(false);
  add_context_option(command, options.context);
  add_cluster_address_options(command, options.cluster);
  command
      .add_option("--wait", options.wait_s, "How long to wait for a cluster that is still forming")
      ->type_name("SECONDS")
      ->capture_default_str()
      ->group("Cluster");
}

Status check_session_options(const SessionOptions& options) {
  const bool has_model = !options.model.path.empty();
  const bool has_coordinator = !options.cluster.coordinator.empty();
  if (has_model == has_coordinator) {
    return invalid_argument(
        has_model ? "both -m and --coordinator are given" : "neither -m nor --coordinator is given",
        "-m FILE runs a model here, --coordinator HOST:PORT asks a cluster");
  }
  if (has_model) return serve::check_model_options(options.model);
  return check_cluster_address(options.cluster);
}

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options, Terminal& terminal,
                                               std::stop_token stop) {
  if (!options.model.path.empty()) {
    std::unique_ptr<serve::LocalEngine> engine = TRY(serve::LocalEngine::open(
        {.model = options.model, .context = options.context}, terminal, stop));
    return std::unique_ptr<Session>(std::make_unique<LocalSession>(std::move(engine)));
  }
  std::unique_ptr<coordinator::Client> client = TRY(connect_client(options.cluster, stop));
  TRY(wait_until_ready(*client, options.wait_s, terminal, stop));
  return std::unique_ptr<Session>(std::make_unique<RemoteSession>(std::move(client)));
}

}  // namespace strata::cli
