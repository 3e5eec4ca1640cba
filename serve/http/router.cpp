#include "serve/http/router.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/base/ascii.h"
#include "runtime/base/utf8.h"

namespace strata::serve {
namespace {

// Without the port, and brackets around IPv6.
std::string host_name(std::string_view host) {
  std::string name;
  if (host.starts_with('[')) {
    name = host.substr(1, host.find(']') - 1);
  } else {
    name = host.substr(0, host.find(':'));
  }
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

// No page can have an address as its name and make it lead elsewhere.
bool is_ip_address(const std::string& name) {
  std::array<unsigned char, 16> bytes{};
  return ::inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

HttpResponse method_not_allowed(std::string allowed) {
  HttpResponse response = error_response(405, "this path knows other methods: " + allowed);
  response.headers.emplace_back("allow", std::move(allowed));
  return response;
}

bool is_known_method(std::string_view method) {
  for (const std::string_view known :
       {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"}) {
    if (method == known) return true;
  }
  return false;
}

}  // namespace

void Router::add(std::string method, std::string path, Handler handler, Access access) {
  if (path.starts_with("/v1/")) {
    Route& shorter = routes_[path.substr(3)];
    shorter.methods.emplace(method, handler);
    shorter.access = access;
  }
  Route& route = routes_[std::move(path)];
  route.methods.emplace(std::move(method), std::move(handler));
  route.access = access;
}

Router::Router(RouterOptions options) : options_(std::move(options)) {
  for (const std::string& host : options_.hosts) hosts_.push_back(host_name(host));
}

const Router::Route* Router::find(const std::string& path) const {
  auto found = routes_.find(path);
  if (found != routes_.end()) return &found->second;
  found = routes_.find(pattern_of(path));
  return found == routes_.end() ? nullptr : &found->second;
}

// The route that takes what stands behind its last '/'.
std::string Router::pattern_of(const std::string& path) const {
  if (routes_.contains(path)) return path;
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash + 1 == path.size()) return {};
  std::string prefix = path.substr(0, slash + 1);
  return prefix.size() > 1 && routes_.contains(prefix) ? prefix : std::string();
}

bool Router::allows_host(std::string_view host) const {
  if (options_.any_host) return true;
  const std::string name = host_name(host);
  return name == "localhost" || name.ends_with(".localhost") || is_ip_address(name) ||
         std::find(hosts_.begin(), hosts_.end(), name) != hosts_.end();
}

bool Router::allows_origin(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return true;
  for (const std::string& allowed : options_.cors_origins) {
    if (allowed == "*" || allowed == origin) return true;
  }
  const std::string_view host = request.header("host");
  return origin == fmt::format("http://{}", host) || origin == fmt::format("https://{}", host);
}

std::optional<HttpResponse> Router::check_target(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (!is_known_method(request.method)) {
    return method_not_allowed("GET, HEAD, POST, OPTIONS");
  }
  if (path.empty() || path[0] != '/') {
    return error_response(400, "the request names no path of this server");
  }
  std::string lower = host_name("[" + path + "]");
  const bool is_odd =
      path.find("..") != std::string::npos || lower.find("%2f") != std::string::npos ||
      lower.find("%2e") != std::string::npos || lower.find("%00") != std::string::npos ||
      lower.find("%5c") != std::string::npos || path.find('\\') != std::string::npos ||
      has_control_character(path);
  if (is_odd) return error_response(400, "the path has parts that no path of this server has");
  return std::nullopt;
}

std::optional<HttpResponse> Router::check(const HttpRequest& request) const {
  if (auto refusal = check_target(request)) return refusal;
  const std::string_view host = request.header("host");
  if (host.empty() && request.version == "1.1") {
    return error_response(400, "the request has no Host header");
  }
  if (!host.empty() && !allows_host(host)) {
    return error_response(
        403, fmt::format("'{}' is no name of this server (--allow-host NAME makes it one)",
                         printable(host, 60)));
  }
  if (!allows_origin(request)) {
    return error_response(403, fmt::format("pages of {} may not use this server (--cors ORIGIN "
                                           "allows them)",
                                           printable(request.header("origin"), 60)));
  }
  const Route* route = find(request.path);
  if (request.method == "OPTIONS") {
    HttpResponse response{.status = 204};
    response.headers.emplace_back("allow", "GET, HEAD, POST, OPTIONS");
    return response;
  }
  const bool is_open = route != nullptr && route->access == Access::open;
  if (!is_open && !options_.keys.allows(request)) {
    HttpResponse response = error_response(401, "no valid API key was shown", "invalid_api_key");
    response.headers.emplace_back("www-authenticate", "Bearer");
    return response;
  }
  if (route == nullptr) {
    return error_response(404, fmt::format("there is nothing at {}", printable(request.path, 100)));
  }
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  if (!route->methods.contains(method)) {
    std::string allowed;
    for (const auto& [name, handler] : route->methods) {
      allowed += (allowed.empty() ? "" : ", ") + name;
    }
    return method_not_allowed(std::move(allowed));
  }
  const std::string_view encoding = request.header("content-encoding");
  if (!encoding.empty() && encoding != "identity") {
    return error_response(415, "compressed bodies are not supported");
  }
  return std::nullopt;
}

void Router::decorate(const HttpRequest& request, HttpResponse& response) const {
  {
    const MutexLock lock(mutex_);
    const std::string pattern = pattern_of(request.path);
    ++counts_[{pattern.empty() ? "other" : pattern, response.status}];
  }
  const std::string_view origin = request.header("origin");
  if (options_.cors_origins.empty() || origin.empty() || !allows_origin(request)) return;
  response.headers.emplace_back("access-control-allow-origin", origin);
  response.headers.emplace_back("vary", "origin");
  response.headers.emplace_back("access-control-expose-headers", "x-request-id, retry-after");
  if (request.method != "OPTIONS") return;
  response.headers.emplace_back("access-control-allow-methods", "GET, POST, OPTIONS");
  const std::string_view wanted = request.header("access-control-request-headers");
  const bool is_plain = std::all_of(wanted.begin(), wanted.end(), [](char c) {
    return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == ',' || c == ' ' || c == '_';
  });
  response.headers.emplace_back(
      "access-control-allow-headers",
      is_plain && !wanted.empty() ? wanted : "authorization, content-type, x-api-key, api-key");
  response.headers.emplace_back("access-control-max-age", "3600");
}

HttpHandler Router::handler() {
  HttpHandler handler;
  handler.check = [this](const HttpRequest& request) { return check(request); };
  handler.decorate = [this](const HttpRequest& request, HttpResponse& response) {
    decorate(request, response);
  };
  handler.handle = [this](const std::shared_ptr<const HttpRequest>& request,
                          std::shared_ptr<HttpReply> reply) {
    const std::string method = request->method == "HEAD" ? "GET" : request->method;
    find(request->path)->methods.at(method)(request, std::move(reply));
  };
  return handler;
}

std::vector<Router::Count> Router::counts() const {
  const MutexLock lock(mutex_);
  std::vector<Count> list;
  for (const auto& [key, count] : counts_) list.push_back({key.first, key.second, count});
  return list;
}

}  // namespace strata::serve
