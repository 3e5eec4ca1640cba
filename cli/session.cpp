#include "cli/session.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <optional>
#include <utility>

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

// Waits while the model is being placed and loaded, also anew after a loss.
Status wait_until_ready(coordinator::Client& client, TimePoint deadline, Terminal& terminal,
                        const std::stop_token& stop) {
  std::string shown;
  while (true) {
    const remote::ClusterStatus status = TRY(client.status(stop));
    if (status.state == "ready") {
      if (!shown.empty()) terminal.end_line();
      return ok_status();
    }
    if (status.state == "stopping" || SystemClock().now() >= deadline) {
      return unavailable(status.detail.empty() ? "the cluster is not ready" : status.detail,
                         "strata ps shows its nodes; a longer --wait waits on");
    }
    if (status.detail != shown) terminal.status("waiting: " + status.detail);
    shown = status.detail;
    if (wait_for_stop(stop, kStatusInterval)) return cancelled("interrupted");
  }
}

// Asks again, within the time to wait, as long as nothing of an answer has come: while a plan is
// replaced by the next, requests are refused, and those that waited end with it.
class RemoteSession final : public Session {
 public:
  RemoteSession(std::unique_ptr<coordinator::Client> client, uint32_t wait_s, Terminal& terminal)
      : client_(std::move(client)), wait_(wait_s), terminal_(terminal) {}

  Status generate(const remote::GenerateRequest& request,
                  const std::function<void(const remote::GenerateEvent&)>& event,
                  std::stop_token stop) override {
    const TimePoint deadline = SystemClock().now() + wait_;
    while (true) {
      std::optional<remote::GenerateStarted> started;
      bool has_answer = false;
      const auto pass_on = [&](const remote::GenerateEvent& next) {
        if (const auto* first = std::get_if<remote::GenerateStarted>(&next)) {
          started = *first;
          return;
        }
        has_answer = true;
        if (started) event(*std::exchange(started, std::nullopt));
        event(next);
      };
      const Status status = client_->generate(request, pass_on, stop);
      const bool may_ask_again =
          status.code() == StatusCode::unavailable && !has_answer && SystemClock().now() < deadline;
      if (!may_ask_again) return status;
      if (wait_for_stop(stop, kStatusInterval)) return cancelled("interrupted");
      const Status ready = wait_until_ready(*client_, deadline, terminal_, stop);
      if (ready.code() == StatusCode::cancelled) return ready;
      if (!ready.ok()) return status;
    }
  }

 private:
  std::unique_ptr<coordinator::Client> client_;
  const std::chrono::seconds wait_;
  Terminal& terminal_;  // outlives the session
};

}  // namespace

void add_session_options(CLI::App& command, SessionOptions& options) {
  add_model_options(command, options.model, "f16");
  command.get_option("--model")->required(false);
  add_context_option(command, options.context);
  add_cluster_address_options(command, options.cluster);
  command
      .add_option("--wait", options.wait_s,
                  "How long to wait for a cluster that is forming, or placing its model anew")
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
  const TimePoint deadline = SystemClock().now() + std::chrono::seconds(options.wait_s);
  TRY(wait_until_ready(*client, deadline, terminal, stop));
  return std::unique_ptr<Session>(
      std::make_unique<RemoteSession>(std::move(client), options.wait_s, terminal));
}

}  // namespace strata::cli
