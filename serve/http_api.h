// HttpApi: the HTTP server of a model, whole: sockets, keys, routes.
//
// Threads: start and stop by one thread, the rest by any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/remote/channel.h"
#include "serve/http/router.h"
#include "serve/model_service.h"

namespace strata::serve {

inline constexpr uint16_t kHttpPort = 8080;

struct HttpApiOptions {
  remote::Address listen;
  bool insecure_network = false;
  std::string model_name;  // as clients call it
  ApiKeys keys;
  std::vector<std::string> hosts;         // names of this server beside loopback's
  std::vector<std::string> cors_origins;  // pages of which others may use it
};

class HttpApi {
 public:
  // Listens; answers 503 until service().open() was called. Errors: PERMISSION_DENIED for an
  // address beyond loopback without keys or without `insecure_network`; those of the listener.
  static Result<std::unique_ptr<HttpApi>> start(HttpApiOptions options);
  ~HttpApi();

  ModelService& service() { return service_; }
  const remote::Address& address() const { return server_->address(); }
  // Closes all connections, which cancels their answers. Before the model goes; the object itself
  // must go after it.
  void stop();

 private:
  explicit HttpApi(HttpApiOptions options);

  ModelService service_;
  Router router_;
  std::unique_ptr<HttpServer> server_;
};

// As remote::parse_address(), with kHttpPort where there is none.
Result<remote::Address> parse_http_address(const std::string& text);

}  // namespace strata::serve
