#include "cli/cluster_options.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "backends/remote/token.h"

namespace strata::cli {
namespace {

constexpr auto kConnectTimeout = std::chrono::seconds(5);

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// $NAME/strata, else a folder below the home, else one of the user's own.
std::string user_folder(const char* name, const char* below_home, const char* below_tmp) {
  const std::string base = environment(name);
  if (!base.empty()) return base + "/strata";
  const std::string home = environment("HOME");
  if (!home.empty()) return home + below_home;
  return "/var/tmp/strata-" + std::to_string(::getuid()) + below_tmp;
}

}  // namespace

void add_token_options(CLI::App& command, TokenOptions& options) {
  command
      .add_option(
          "--token-file", options.file,
          "File with the cluster's token (default: STRATA_TOKEN in the environment, else the "
          "user's own token file)")
      ->type_name("FILE")
      ->group("Cluster");
}

Result<std::string> read_token(const TokenOptions& options, bool create) {
  return remote::load_token(
      {.file = options.file,
       .environment = environment("STRATA_TOKEN"),
       .default_folder = remote::default_token_folder(
           environment("XDG_RUNTIME_DIR"), environment("XDG_CACHE_HOME"), environment("HOME"))},
      create);
}

std::string user_cache_folder() { return user_folder("XDG_CACHE_HOME", "/.cache/strata", ""); }

std::string user_state_folder() {
  return user_folder("XDG_STATE_HOME", "/.local/state/strata", "/state");
}

void add_cluster_address_options(CLI::App& command, ClusterAddressOptions& options) {
  command
      .add_option("--coordinator", options.coordinator,
                  "The coordinator to ask; a port that is left out is 50051")
      ->type_name("HOST:PORT")
      ->group("Cluster");
  add_token_options(command, options.token);
  command
      .add_flag("--insecure-network", options.insecure_network,
                "Allow an address beyond this machine, without encryption")
      ->group("Cluster");
}

Status check_cluster_address(const ClusterAddressOptions& options) {
  TRY(remote::parse_address(options.coordinator, remote::AddressUse::dial)
          .with_context("--coordinator"));
  return ok_status();
}

Result<std::unique_ptr<coordinator::Client>> connect_client(const ClusterAddressOptions& options,
                                                            std::stop_token stop) {
  const remote::Address address =
      TRY(remote::parse_address(options.coordinator, remote::AddressUse::dial)
              .with_context("--coordinator"));
  TRY(remote::check_exposure(address, options.insecure_network));
  const std::string token = TRY(read_token(options.token, false));
  return coordinator::Client::connect(address, token, kConnectTimeout, stop);
}

}  // namespace strata::cli
