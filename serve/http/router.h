// Router: who may ask what, and who answers it.
//
// Before a body is read: the Host must be one of this server's own names, so that no web page gets
// at it through a name of its own (DNS rebinding); the Origin, where a browser sends one, must be
// the server itself or allowed; a key must be shown where keys are wanted; path and method exist.
//
// Threads: add() first, by one thread; then any.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/mutex.h"
#include "serve/http/api_keys.h"
#include "serve/http/server.h"

namespace strata::serve {

struct RouterOptions {
  ApiKeys keys;
  std::vector<std::string> hosts;         // names beside loopback's and IP addresses
  bool any_host = false;                  // for servers beyond loopback, which want keys
  std::vector<std::string> cors_origins;  // "*": all
};

class Router {
 public:
  using Handler =
      std::function<void(const std::shared_ptr<const HttpRequest>&, std::shared_ptr<HttpReply>)>;
  enum class Access { key, open };

  explicit Router(RouterOptions options);

  // `path` as in "/v1/models"; one that ends in '/' takes what is behind it as well. Paths that
  // begin with "/v1/" are served without it, too.
  void add(std::string method, std::string path, Handler handler, Access access = Access::key);
  // For HttpServer. The router must outlive it.
  HttpHandler handler();

  struct Count {
    std::string path;
    int status;
    uint64_t requests;
  };
  // Responses so far, by route and status.
  std::vector<Count> counts() const;

 private:
  struct Route {
    std::map<std::string, Handler> methods;
    Access access = Access::key;
  };

  std::optional<HttpResponse> check(const HttpRequest& request) const;
  std::optional<HttpResponse> check_target(const HttpRequest& request) const;
  void decorate(const HttpRequest& request, HttpResponse& response) const;
  bool allows_host(std::string_view host) const;
  bool allows_origin(const HttpRequest& request) const;
  const Route* find(const std::string& path) const;
  std::string pattern_of(const std::string& path) const;

  const RouterOptions options_;
  std::vector<std::string> hosts_;  // the options' in lower case
  std::map<std::string, Route> routes_;
  mutable Mutex mutex_;
  mutable std::map<std::pair<std::string, int>, uint64_t> counts_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::serve
