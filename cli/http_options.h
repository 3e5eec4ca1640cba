// The options of whoever serves HTTP: `strata serve`, and `strata coordinator --http`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "serve/http_api.h"

namespace CLI {
class App;
}

namespace strata::cli {

struct HttpOptions {
  std::string listen;
  std::string keys_file;
  std::string alias;  // what clients call the model; empty: its file's name
  std::vector<std::string> cors_origins;
  std::vector<std::string> hosts;  // names of this server beside loopback's
};

// All but the address, whose option is the command's own.
void add_http_options(CLI::App& command, HttpOptions& options);
// Errors: INVALID_ARGUMENT for an address that is none.
Status check_http_options(const HttpOptions& options);
// Listens. Errors: those of the keys' file and of HttpApi::start().
Result<std::unique_ptr<serve::HttpApi>> start_http_api(const HttpOptions& options,
                                                       const std::string& model_path,
                                                       bool insecure_network);

}  // namespace strata::cli
