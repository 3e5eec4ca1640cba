// HttpServer: HTTP/1.1 over TCP, on a few threads for all connections.
//
// Knows connections and nothing of what is said over them: requests go to a handler on threads of
// its own, replies come back from wherever (message.h). Bounds, each with its answer:
//
//   connections      the longest idle one makes room; without one 503
//   header           431 beyond header_bytes_max; 408 if it takes longer than header_timeout
//   body             413 before it is read, or as soon as chunks go beyond body_bytes_max; 503 if
//                    those of all connections go beyond bodies_bytes_max
//   a slow reader    is left after write_timeout without a byte taken, or with a full buffer
//   an idle client   is left after idle_timeout
//
// A client that goes is noticed at once, also while its answer is computed. Requests that are sent
// before the answer to the one before (pipelining) wait their turn.
//
// This header includes no Boost. Threads: start and stop by one thread, once each.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "backends/remote/channel.h"
#include "runtime/base/clock.h"
#include "runtime/base/status.h"
#include "serve/http/message.h"

namespace strata::serve {

struct HttpServerOptions {
  remote::Address listen;
  size_t connections_max = 1024;
  size_t header_bytes_max = size_t{32} << 10;
  size_t body_bytes_max = size_t{32} << 20;
  size_t bodies_bytes_max = size_t{256} << 20;
  size_t stream_bytes_max = size_t{1} << 20;  // of one response that wait for their client
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};         // without a byte
  std::chrono::milliseconds body_total_timeout{300'000};  // for the whole of it
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds write_timeout{30'000};
  std::chrono::milliseconds ping_interval{15'000};
  int io_threads = 2;
  int handler_threads = 4;
};

// Both run on the server's threads, several at once.
struct HttpHandler {
  // Once the header is there: a response refuses the request before its body is read.
  std::function<std::optional<HttpResponse>(const HttpRequest&)> check;
  // The whole request. May take its time; must use the reply once, then or later.
  std::function<void(std::shared_ptr<const HttpRequest>, std::shared_ptr<HttpReply>)> handle;
  // Headers for every response to the request, such as those of CORS. May be empty.
  std::function<void(const HttpRequest&, HttpResponse&)> decorate;
};

class HttpServer {
 public:
  // Errors: those of Listener::bind(); RESOURCE_EXHAUSTED without threads.
  static Result<std::unique_ptr<HttpServer>> start(const HttpServerOptions& options,
                                                   HttpHandler handler);
  virtual ~HttpServer() = default;
  // With the port that the system chose.
  virtual const remote::Address& address() const = 0;
  virtual size_t connection_count() const = 0;
  // Closes all connections, as if their clients had gone, and waits until no handler runs. Replies
  // may still be used until the server is destroyed, without effect. Any number of times.
  virtual void stop() = 0;
};

}  // namespace strata::serve
