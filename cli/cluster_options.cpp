#include "cli/cluster_options.h"

#include <unistd.h>

#include <cstdlib>

#include "backends/remote/token.h"

namespace strata::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

void add_token_options(CLI::App& command, TokenOptions& options) {
  command.add_option("--token-file", options.file,
                     "File with the cluster's token (default: STRATA_TOKEN in the environment, "
                     "else the user's own token file)");
}

Result<std::string> read_token(const TokenOptions& options, bool create) {
  return remote::load_token(
      {.file = options.file,
       .environment = environment("STRATA_TOKEN"),
       .default_folder = remote::default_token_folder(
           environment("XDG_RUNTIME_DIR"), environment("XDG_CACHE_HOME"), environment("HOME"))},
      create);
}

std::string user_cache_folder() {
  const std::string cache = environment("XDG_CACHE_HOME");
  if (!cache.empty()) return cache + "/strata";
  const std::string home = environment("HOME");
  if (!home.empty()) return home + "/.cache/strata";
  return "/var/tmp/strata-" + std::to_string(::getuid());
}

void add_cluster_address_options(CLI::App& command, ClusterAddressOptions& options) {
  command.add_option("--coordinator", options.coordinator,
                     "Coordinator to ask, HOST:PORT (its default port: 50051)");
  add_token_options(command, options.token);
}

}  // namespace strata::cli
