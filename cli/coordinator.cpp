#include "cli/coordinator.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "cli/cluster_options.h"
#include "cli/serving.h"

namespace strata::cli {
namespace {

struct CoordinatorCommandOptions {
  ServingOptions serving;
  TokenOptions token;
  std::string listen = "127.0.0.1:50051";
  bool insecure_network = false;
  std::string address_file;
};

// Whole or not at all, so that whoever waits for the file never reads half an address.
Status write_address(const std::string& path, const std::string& address) {
  const std::string temporary = path + ".new";
  std::FILE* file = std::fopen(temporary.c_str(), "w");
  if (file == nullptr) return from_errno(errno, "cannot write " + temporary);
  const bool written = std::fputs((address + "\n").c_str(), file) >= 0;
  if (std::fclose(file) != 0 || !written) return from_errno(errno, "cannot write " + temporary);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return from_errno(errno, "cannot write " + path);
  }
  return ok_status();
}

Status run_coordinator(const CoordinatorCommandOptions& options) {
  Signals signals;
  Terminal terminal;
  ListenOptions listen;
  listen.listen = TRY(remote::parse_address(options.listen, remote::AddressUse::listen));
  listen.insecure_network = options.insecure_network;
  TRY(remote::check_exposure(listen.listen, options.insecure_network));
  listen.token = TRY(read_token(options.token, true));
  const std::unique_ptr<coordinator::Coordinator> coordinator =
      TRY(start_coordinator(options.serving, listen, terminal, signals));
  const std::string address = coordinator->address().text();
  if (options.insecure_network && !coordinator->address().is_loopback()) {
    terminal.line(
        "listening beyond loopback without encryption: the token and all text can be "
        "read on the network",
        true);
  }
  terminal.line(
      fmt::format("listening on {}; workers join with: strata worker --join {}", address, address));
  if (!options.address_file.empty()) TRY(write_address(options.address_file, address));
  signals.wait();
  terminal.line("stopping");
  coordinator->stop();
  return ok_status();
}

}  // namespace

void add_coordinator_command(CLI::App& app, CommandContext& context) {
  CLI::App& command =
      *app.add_subcommand("coordinator", "Place a model on workers that join, and serve clients");
  auto options = std::make_shared<CoordinatorCommandOptions>();
  add_serving_options(command, options->serving);
  command
      .add_option("--listen", options->listen, "Address for workers and clients; port 0: any free")
      ->capture_default_str();
  command.add_flag("--insecure-network", options->insecure_network,
                   "Allow an address beyond loopback, without encryption");
  command.add_option("--address-file", options->address_file,
                     "Write the address here once it is listened on");
  add_token_options(command, options->token);
  add_example(command, "strata coordinator -m model.gguf --workers 2");
  command.callback(
      [options, &context] { context.run = [options] { return run_coordinator(*options); }; });
}

}  // namespace strata::cli
