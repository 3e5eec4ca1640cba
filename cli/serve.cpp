#include "cli/serve.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "backends/remote/listener.h"
#include "cli/address_file.h"
#include "cli/http_options.h"
#include "cli/json_line.h"
#include "cli/model_options.h"
#include "cli/signals.h"
#include "cli/terminal.h"
#include "serve/local_engine.h"

namespace strata::cli {
namespace {

struct ServeOptions {
  serve::LocalEngineOptions engine;
  HttpOptions http{
      .listen = "127.0.0.1:8080", .keys_file = {}, .alias = {}, .cors_origins = {}, .hosts = {}};
  uint32_t request_timeout_s = 3600;
  bool insecure_network = false;
  std::string address_file;
  bool json = false;
};

Status run_serve(const ServeOptions& options) {
  remote::raise_descriptor_limit();
  const Signals signals(options.json);
  const std::stop_token stop = signals.stop_token();
  Terminal terminal(options.json);
  // Listens before the model is loaded: who asks meanwhile is told that it is loading.
  const std::unique_ptr<serve::HttpApi> api =
      TRY(start_http_api(options.http, options.engine.model.path, options.insecure_network));
  const std::string address = remote::reachable_address(api->address()).text();
  if (!options.address_file.empty()) TRY(write_address_file(options.address_file, address));
  serve::LocalEngineOptions engine_options = options.engine;
  engine_options.request_timeout = std::chrono::seconds(options.request_timeout_s);
  const std::unique_ptr<serve::LocalEngine> engine =
      TRY(serve::LocalEngine::open(engine_options, terminal, stop));
  serve::ModelFacts facts =
      TRY(serve::facts_of(*engine->file(), engine->context(), options.engine.sequences));
  api->service().open({.generator = engine->generator(),
                       .engine = engine->engine(),
                       .facts = std::move(facts),
                       .health = {},
                       .cluster = [&engine] { return engine->status(); }});
  terminal.line(fmt::format(
      "{} answers {} at once, {} tokens of context each: http://{}/ is the "
      "page, http://{}/v1 the API",
      api->service().name(), options.engine.sequences, engine->context(), address, address));
  if (options.json) terminal.answer(json_line(nlohmann::json{{"listening", address}}));
  wait_for_stop(stop);
  terminal.line("stopping");
  api->stop();
  return ok_status();
}

void add_capacity_options(CLI::App& command, ServeOptions& options) {
  const auto add = [&](const char* name, auto& target, const char* type, const char* text) {
    return command.add_option(name, target, text)
        ->type_name(type)
        ->capture_default_str()
        ->group("Capacity");
  };
  add("--parallel", options.engine.sequences, "N",
      "Requests that are answered at once, each with a whole context of its own")
      ->check(CLI::Range(1, 256));
  add("--queue", options.engine.queue, "N", "Requests that may wait; one more is answered with 429")
      ->check(CLI::Range(1, 1 << 20));
  add("--request-timeout", options.request_timeout_s, "SECONDS",
      "Time that a request may take, waiting included; 0: no limit")
      ->check(CLI::Range(0, 1 << 30));
}

}  // namespace

void add_serve_command(CLI::App& app, CommandContext& context) {
  CLI::App& command = *app.add_subcommand(
      "serve", "Serve a model of this machine over HTTP: OpenAI's API and a page");
  auto options = std::make_shared<ServeOptions>();
  options->engine.sequences = 4;
  options->engine.queue = 256;
  add_model_options(command, options->engine.model, "f16");
  add_context_option(command, options->engine.context);
  add_capacity_options(command, *options);
  command
      .add_option("--listen", options->http.listen,
                  "Address to serve; a port that is left out is 8080, port 0 takes a free one")
      ->type_name("HOST:PORT")
      ->capture_default_str()
      ->group("HTTP");
  add_http_options(command, options->http);
  command
      .add_flag("--insecure-network", options->insecure_network,
                "Allow an address beyond this machine, without encryption (needs --api-keys)")
      ->group("HTTP");
  command
      .add_option("--address-file", options->address_file,
                  "Write the address here once it is listened on")
      ->type_name("FILE")
      ->group("HTTP");
  add_json_option(command, context, "Print the address as one JSON object once the model answers");
  add_example(command, "strata serve -m model.gguf");
  command.callback([options, &context] {
    context.check = [options] {
      TRY(check_http_options(options->http).with_context("--listen"));
      return serve::check_model_options(options->engine.model);
    };
    context.run = [options, &context] {
      options->json = context.json;
      return run_serve(*options);
    };
  });
}

}  // namespace strata::cli
