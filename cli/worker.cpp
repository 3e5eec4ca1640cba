#include "cli/worker.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "cli/cluster_options.h"
#include "cli/signals.h"
#include "runtime/base/human.h"
#include "runtime/base/log.h"
#include "worker/hardware_probe.h"
#include "worker/worker.h"

namespace strata::cli {
namespace {

// Signals after which the process ends at once, in whatever state it is.
constexpr int kImpatientSignals = 2;

struct WorkerCommandOptions {
  std::string join;
  std::string listen = "127.0.0.1:0";
  std::string name;
  uint32_t threads = 0;
  std::string memory;
  std::vector<std::string> models;
  std::string cache;
  std::string speed;
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
    options.memory_limit_bytes = TRY(parse_bytes(given.memory).with_context("--memory"));
    if (options.memory_limit_bytes == 0) return invalid_argument("--memory 0: nothing would fit");
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
  options.isa = given.isa;
  options.insecure_network = given.insecure_network;
  options.read_token = [token = given.token] { return read_token(token, false); };
  return options;
}

Status run_worker(WorkerCommandOptions given, const std::string& log_level) {
  Signals signals;
  if (given.name.empty()) given.name = default_name();
  const worker::WorkerOptions options = TRY(worker_options(given));
  TRY(log::configure(options.name, log_level));
  if (options.insecure_network) {
    log::warn(
        "connections beyond this machine are not encrypted: the token and all text can be read on "
        "the network");
  }
  const std::unique_ptr<worker::Worker> worker = TRY(worker::Worker::create(options));
  signals.on_signal([&worker](int count) {
    if (count > kImpatientSignals) std::_Exit(exit_error);
    worker->stop("a signal asked it to end");
  });
  if (signals.count() > 0) return ok_status();  // during the probe
  const Status ended = worker->run();
  signals.on_signal([](int) { std::_Exit(exit_error); });
  return ended;
}

}  // namespace

void add_worker_command(CLI::App& app, CommandContext& context) {
  CLI::App& command =
      *app.add_subcommand("worker", "Join a coordinator and run a part of its model");
  auto options = std::make_shared<WorkerCommandOptions>();
  command
      .add_option("--join", options->join, "The coordinator, HOST:PORT (its default port: 50051)")
      ->required();
  command
      .add_option("--listen", options->listen,
                  "Where other workers reach this one; port 0: any free")
      ->capture_default_str();
  command.add_option("--name", options->name, "Name in the cluster (default: HOST-PID)");
  command.add_option("--threads", options->threads,
                     "Threads to compute with (default: one for each core)");
  command.add_option("--memory", options->memory,
                     "Memory to use at most, such as 8GiB (default: 90 % of what is free)");
  command.add_option("--models", options->models,
                     "Folder with model files; may be given again. A model that is in none comes "
                     "from the coordinator");
  command.add_option(
      "--cache", options->cache,
      "Folder for tensors that came from the coordinator (default: the user's cache)");
  command.add_option("--speed", options->speed,
                     "READ_GB_S,INT8_GOPS,F32_GFLOPS in place of measuring, such as 20,400,100");
  command.add_option("--isa", options->isa,
                     "Vector path: scalar, avx2 or avx512 (default: the best)");
  add_token_options(command, options->token);
  command.add_flag("--insecure-network", options->insecure_network,
                   "Allow addresses beyond loopback, without encryption");
  add_example(command, "strata worker --join 127.0.0.1:50051 --models ~/models");
  command.callback([options, &context] {
    context.run = [options, &context] { return run_worker(*options, context.log_level); };
  });
}

}  // namespace strata::cli
