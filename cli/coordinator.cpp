#include "cli/coordinator.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "backends/remote/listener.h"
#include "cli/address_file.h"
#include "cli/cluster_options.h"
#include "cli/http_options.h"
#include "cli/json_line.h"
#include "cli/serving.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "runtime/model/hparams.h"
#include "serve/local_engine.h"

namespace strata::cli {
namespace {

using Json = nlohmann::json;

struct CoordinatorCommandOptions {
  serve::ServingOptions serving;
  TokenOptions token;
  std::string listen = "127.0.0.1:50051";
  bool insecure_network = false;
  std::string address_file;
  bool json = false;
  std::string state_folder;
  HttpOptions http;  // without an address: no HTTP
};

Result<remote::Address> listen_address(const CoordinatorCommandOptions& options) {
  return remote::parse_address(options.listen, remote::AddressUse::listen).with_context("--listen");
}

// One for each fixed address, so that a coordinator that is started again goes on with its cluster.
// A port that the system chooses is another one each time: nobody finds such a cluster again.
std::string default_state_folder(const remote::Address& listen) {
  if (listen.port == 0) return {};
  std::string name = listen.text();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ':' || c == '/' || c == '%'; }, '_');
  return user_state_folder() + "/coordinator-" + name;
}

// Where the cluster's id and epoch are kept; a default that cannot be written is done without.
std::string choose_state_folder(const CoordinatorCommandOptions& options,
                                const remote::Address& listen, Terminal& terminal) {
  if (!options.state_folder.empty()) return options.state_folder;
  std::string folder = default_state_folder(listen);
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (!error) return folder;
  terminal.line(fmt::format("cannot make {} ({}): workers must be started anew with this "
                            "coordinator; --state FOLDER names another place",
                            folder, error.message()),
                true);
  return {};
}

// Others must be able to dial what is shown.
std::string shown_address(const remote::Address& listening) {
  return remote::reachable_address(listening).text();
}

std::string join_hint(const remote::Address& listening) {
  return fmt::format("listening on {}; workers join with: strata worker --join {}{}",
                     listening.text(), shown_address(listening),
                     listening.is_loopback() ? "" : " --listen 0.0.0.0:0 --insecure-network");
}

void print_json(Terminal& terminal, const Json& object) { terminal.answer(json_line(object)); }

// The server answers with the coordinator's pipeline, whenever there is one.
Status open_http(serve::HttpApi& http, const CoordinatorCommandOptions& options,
                 coordinator::Coordinator& coordinator) {
  const auto file = TRY(GgufFile::open(options.serving.model_path));
  const Hparams hparams = TRY(read_hparams(*file));
  const uint32_t context = TRY(serve::choose_context(hparams, options.serving.context));
  serve::ModelFacts facts = TRY(serve::facts_of(*file, context, options.serving.slots));
  http.service().open({.generator = coordinator.generator(),
                       .engine = coordinator.engine(),
                       .facts = std::move(facts),
                       .health = [&coordinator] { return coordinator.obstacle(); },
                       .cluster = [&coordinator] { return coordinator.status(); }});
  return ok_status();
}

Status run_coordinator(const CoordinatorCommandOptions& options) {
  remote::raise_descriptor_limit();
  const Signals signals(options.json);
  const std::stop_token stop = signals.stop_token();
  Terminal terminal(options.json);
  serve::ListenOptions listen;
  listen.listen = TRY(listen_address(options));
  listen.insecure_network = options.insecure_network;
  TRY(remote::check_exposure(listen.listen, options.insecure_network));
  listen.token = TRY(read_token(options.token, true));
  serve::ServingOptions serving = options.serving;
  serving.digest_folder = user_cache_folder() + "/digests";
  if (options.json) {
    serving.on_note = [&terminal](const coordinator::Note& note) {
      print_json(terminal, {{"note", note.text}, {"is_warning", note.is_warning}});
    };
  }
  // Before the coordinator: it must outlive those whose answers it passes on.
  std::unique_ptr<serve::HttpApi> http;
  if (!options.http.listen.empty()) {
    http = TRY(start_http_api(options.http, serving.model_path, options.insecure_network));
  }
  listen.state_folder = choose_state_folder(options, listen.listen, terminal);
  auto started = serve::start_coordinator(serving, listen, terminal, stop);
  if (started.status().code() == StatusCode::already_exists && options.state_folder.empty()) {
    return Status(StatusCode::already_exists,
                  fmt::format("cannot listen on {}: the port is taken", listen.listen.text()),
                  "another coordinator may run there; stop it, or choose another --listen");
  }
  const std::unique_ptr<coordinator::Coordinator> coordinator = TRY(std::move(started));
  const remote::Address& address = coordinator->address();
  if (options.insecure_network && !address.is_loopback()) {
    terminal.line(
        "listening beyond loopback without encryption: the token and all text can be "
        "read on the network",
        true);
  }
  terminal.line(join_hint(address));
  if (http) {
    TRY(open_http(*http, options, *coordinator));
    terminal.line(fmt::format("http://{}/ is the page, http://{}/v1 the API",
                              shown_address(http->address()), shown_address(http->address())));
  }
  if (options.json) {
    Json listening = {{"listening", address.text()}, {"address", shown_address(address)}};
    if (http) listening["http"] = shown_address(http->address());
    print_json(terminal, listening);
  }
  if (!options.address_file.empty()) {
    TRY(write_address_file(options.address_file, shown_address(address)));
  }
  wait_for_stop(stop);
  terminal.line("stopping");
  if (http) http->stop();
  coordinator->stop();
  return ok_status();
}

Status check_coordinator_http(const CoordinatorCommandOptions& options) {
  const HttpOptions& http = options.http;
  if (!http.listen.empty()) return check_http_options(http).with_context("--http");
  if (http.keys_file.empty() && http.alias.empty() && http.cors_origins.empty() &&
      http.hosts.empty()) {
    return ok_status();
  }
  return invalid_argument(
      "--api-keys, --alias, --cors and --allow-host are for HTTP, and no --http is given",
      "--http 127.0.0.1:8080 serves it");
}

}  // namespace

void add_coordinator_command(CLI::App& app, CommandContext& context) {
  CLI::App& command =
      *app.add_subcommand("coordinator", "Place a model on workers that join, and serve clients");
  auto options = std::make_shared<CoordinatorCommandOptions>();
  add_serving_options(command, options->serving);
  command
      .add_option(
          "--listen", options->listen,
          "Address for workers and clients; a port that is left out is 50051, port 0 takes a "
          "free one")
      ->type_name("HOST:PORT")
      ->capture_default_str()
      ->group("Cluster");
  command
      .add_option("--address-file", options->address_file,
                  "Write the address here once it is listened on")
      ->type_name("FILE")
      ->group("Cluster");
  command
      .add_option("--state", options->state_folder,
                  "Folder for the cluster's id and epoch (default: one for each fixed address)")
      ->type_name("FOLDER")
      ->group("Cluster");
  command
      .add_option("--http", options->http.listen,
                  "Serve the HTTP API and the page at this address too; a port that is left out is "
                  "8080")
      ->type_name("HOST:PORT")
      ->group("HTTP");
  add_http_options(command, options->http);
  add_token_options(command, options->token);
  command
      .add_flag("--insecure-network", options->insecure_network,
                "Allow an address beyond this machine, without encryption")
      ->group("Cluster");
  add_json_option(command, context,
                  "Print the address and all notes as JSON objects, one on each line");
  add_example(command, "strata coordinator -m model.gguf --workers 2");
  command.callback([options, &context] {
    context.check = [options] {
      TRY(listen_address(*options));
      TRY(check_coordinator_http(*options));
      return serve::check_serving_options(options->serving);
    };
    context.run = [options, &context] {
      options->json = context.json;
      return run_coordinator(*options);
    };
  });
}

}  // namespace strata::cli
