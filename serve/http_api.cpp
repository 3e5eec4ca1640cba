#include "serve/http_api.h"

#include <fmt/format.h>

#include "serve/openai/api.h"
#include "serve/page/page_routes.h"

namespace strata::serve {
namespace {

Status check_open(const HttpApiOptions& options) {
  if (options.listen.is_loopback()) return ok_status();
  if (options.keys.empty()) {
    return {StatusCode::permission_denied,
            fmt::format("{} can be reached from other machines, and no API keys are given",
                        options.listen.text()),
            "name a file of keys with --api-keys, or listen on 127.0.0.1"};
  }
  return remote::check_exposure(options.listen, options.insecure_network);
}

RouterOptions router_options(HttpApiOptions& options) {
  RouterOptions result;
  result.any_host = !options.listen.is_loopback() && !options.keys.empty();
  result.keys = std::move(options.keys);
  result.hosts = std::move(options.hosts);
  result.hosts.push_back(options.listen.host);
  result.cors_origins = std::move(options.cors_origins);
  return result;
}

}  // namespace

HttpApi::HttpApi(HttpApiOptions options)
    : service_(options.model_name), router_(router_options(options)) {
  add_operation_routes(router_, service_);
  add_openai_routes(router_, service_);
  add_page_routes(router_, service_);
}

HttpApi::~HttpApi() { stop(); }

Result<std::unique_ptr<HttpApi>> HttpApi::start(HttpApiOptions options) {
  TRY(check_open(options));
  HttpServerOptions server;
  server.listen = options.listen;
  std::unique_ptr<HttpApi> api(new HttpApi(std::move(options)));
  api->server_ = TRY(HttpServer::start(server, api->router_.handler()));
  return api;
}

void HttpApi::stop() {
  if (server_) server_->stop();
  service_.helper().stop();
}

Result<remote::Address> parse_http_address(const std::string& text) {
  remote::Address address = TRY(remote::parse_address(text, remote::AddressUse::listen));
  const bool has_port = text.ends_with(fmt::format(":{}", remote::kDefaultPort));
  if (address.port == remote::kDefaultPort && !has_port) address.port = kHttpPort;
  return address;
}

}  // namespace strata::serve
