#include "cli/worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "backends/remote/channel.h"
#include "backends/remote/listener.h"
#include "cli/cluster_options.h"
#include "cli/model_options.h"
#include "cli/signals.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"
#include "worker/hardware_probe.h"
#include "worker/worker.h"

namespace strata::cli {
namespace {

struct WorkerCommandOptions {
  std::string join;
  std::string listen = "127.0.0.1:0";
  std::string name;
  uint32_t threads = 0;
  std::string memory;
  std::vector<std::string> models;
  std::string cache;
  std::string speed;
  std::string pin = "auto";
  std::string isa;
  TokenOptions token;
  bool insecure_network = false;
};

// "HOST-PID", with what no name may have left out.
std::string default_name() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  std::string name;
  for (const char* c = host.data(); *c != '\0' && *c != '.' && name.size() < 40; ++c) {
    const bool good = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                      (*c >= '0' && *c <= '9') || (*c == '-' && !name.empty());
    if (good) name += *c;
  }
  return fmt::format("{}-{}", name.empty() ? "worker" : name, ::getpid());
}

Result<worker::WorkerOptions> worker_options(const WorkerCommandOptions& given) {
  worker::WorkerOptions options;
  options.coordinator =
      TRY(remote::parse_address(given.join, remote::AddressUse::dial).with_context("--join"));
  options.listen =
      TRY(remote::parse_address(given.listen, remote::AddressUse::listen).with_context("--listen"));
  options.name = given.name;
  options.threads = given.threads;
  if (given.threads > 1024) {
    return invalid_argument(fmt::format("--threads {} is more than 1024", given.threads));
  }
  if (!given.memory.empty()) {
    options.memory_limit_bytes =
        TRY(parse_memory(given.memory).with_context("--memory " + given.memory));
  }
  for (const std::string& folder : given.models) {
    std::error_code error;
    if (!std::filesystem::is_directory(folder, error)) {
      return invalid_argument(fmt::format("--models {} is not a folder", folder));
    }
    options.model_folders.push_back(folder);
  }
  options.cache_folder = given.cache.empty() ? user_cache_folder() : given.cache;
  if (!given.speed.empty()) options.speed = TRY(worker::parse_speed(given.speed));
  options.pin = TRY(parse_pin_mode(given.pin).with_context("--pin"));
  options.isa = given.isa;
  options.insecure_network = given.insecure_network;
  options.read_token = [token = given.token] { return read_token(token, false); };
  return options;
}

Status run_worker(WorkerCommandOptions given, const std::string& log_level, bool is_json) {
  remote::expect_few_connections();
  remote::raise_descriptor_limit();
  Signals signals(is_json);
  if (given.name.empty()) given.name = default_name();
  worker::WorkerOptions options = TRY(worker_options(given));
  options.stop = signals.stop_token();
  TRY(log::configure(options.name, log_level));
  if (options.insecure_network) {
    log::warn(
        "connections beyond this machine are not encrypted: the token and all text can be read on "
        "the network");
  }
  auto created = worker::Worker::create(options);
  // While speeds are measured, or another worker's measuring is waited for: nothing to wind up.
  if (created.status().code() == StatusCode::cancelled) return ok_status();
  const std::unique_ptr<worker::Worker> worker = TRY(std::move(created));
  const Signals::Handling handling = signals.handle(
      [&worker](const Signals::Event&) { worker->stop("a signal asked it to end"); });
  return worker->run();
}

}  // namespace

void add_worker_command(CLI::App& app, CommandContext& context) {
  CLI::App& command =
      *app.add_subcommand("worker", "Join a coordinator and run a part of its model");
  auto options = std::make_shared<WorkerCommandOptions>();
  const auto add = [&](const char* group, const char* name, auto& target, const char* type,
                       const char* text) {
    return command.add_option(name, target, text)->type_name(type)->group(group);
  };
  add("Cluster", "--join", options->join, "HOST:PORT",
      "The coordinator; a port that is left out is 50051")
      ->required();
  add("Cluster", "--listen", options->listen, "HOST:PORT",
      "Where other workers reach this one; a port that is left out is 50051, port 0 takes a free "
      "one")
      ->capture_default_str();
  add("Cluster", "--name", options->name, "NAME",
      "Name in the cluster, one of its own (default: HOST-PID)");
  add_token_options(command, options->token);
  command
      .add_flag("--insecure-network", options->insecure_network,
                "Allow addresses beyond this machine, without encryption")
      ->group("Cluster");
  add("Model", "--models", options->models, "FOLDER",
      "Folder with model files; may be given again. A model that is in none comes from the "
      "coordinator");
  add("Model", "--cache", options->cache, "FOLDER",
      "Folder for tensors that came from the coordinator (default: the user's cache)");
  add("Model", "--memory", options->memory, "SIZE",
      "Memory to use at most, such as 8GiB (default: 90 % of what is free)");
  add("Processor", "--threads", options->threads, "N",
      "Threads that compute; 0: one for each core (default 0)");
  add_pin_option(command, options->pin);
  add("Processor", "--isa", options->isa, "PATH",
      "Vector path: scalar, avx2 or avx512; equal results on each (default: the best here)");
  add("Processor", "--speed", options->speed, "A,B,C",
      "Read GB/s, int8 GOP/s and f32 GFLOP/s in place of measuring, such as 20,400,100");
  add_json_option(command, context, "No log lines");
  add_example(command, "strata worker --join 127.0.0.1:50051 --models ~/models");
  command.callback([options, &context] {
    context.check = [options] { return worker_options(*options).status(); };
    context.run = [options, &context] {
      return run_worker(*options, context.chosen_log_level(), context.json);
    };
  });
}

}  // namespace strata::cli
