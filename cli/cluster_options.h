// Options that all commands share which talk to a cluster: its address and its token.
//
// The token comes from a file or the environment, never from the command line, which others can
// read (backends/remote/token.h says where it is looked for).
#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "backends/remote/channel.h"
#include "coordinator/client.h"
#include "runtime/base/status.h"

namespace CLI {
class App;
}  // namespace CLI

namespace strata::cli {

struct TokenOptions {
  std::string file;
};
// --token-file.
void add_token_options(CLI::App& command, TokenOptions& options);
// `create`: makes the default token if there is none (the coordinator).
Result<std::string> read_token(const TokenOptions& options, bool create);

// Where tensors and digests are kept between runs: $XDG_CACHE_HOME/strata, ~/.cache/strata, or a
// folder below /var/tmp without a home.
std::string user_cache_folder();

// Where a coordinator keeps what must survive it: $XDG_STATE_HOME/strata, ~/.local/state/strata, or
// a folder below /var/tmp without a home.
std::string user_state_folder();

// Whom commands ask that need no other address.
inline constexpr const char* kDefaultCoordinator = "127.0.0.1:50051";

struct ClusterAddressOptions {
  std::string coordinator;
  TokenOptions token;
  bool insecure_network = false;
};
// --coordinator HOST:PORT, --token-file and --insecure-network.
void add_cluster_address_options(CLI::App& command, ClusterAddressOptions& options);
// Errors: INVALID_ARGUMENT for what is no address.
Status check_cluster_address(const ClusterAddressOptions& options);
// Errors: PERMISSION_DENIED for an address beyond loopback without --insecure-network, those of the
// token and of Client::connect().
Result<std::unique_ptr<coordinator::Client>> connect_client(const ClusterAddressOptions& options,
                                                            std::stop_token stop);

}  // namespace strata::cli
