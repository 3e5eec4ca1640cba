// Connection: one TCP connection of the HTTP server. For serve/http/*.cpp only: it includes Boost.
//
// Everything runs on the connection's strand but what HttpReply may be asked from any thread, which
// lies in Reply under its mutex. The cycle: read a header, check it, read the body, hand over to
// the handler, and write what comes; meanwhile the socket is read on, so that its end is noticed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>
#include <string>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"
#include "serve/http/server.h"

namespace strata::serve {

class Connection;

// What connections ask of their server.
class ConnectionHost {
 public:
  virtual ~ConnectionHost() = default;
  virtual const HttpServerOptions& options() const = 0;
  virtual const HttpHandler& handler() const = 0;
  // Runs a request's handler on another thread.
  virtual void dispatch(std::function<void()> job) = 0;
  // Idle connections may be closed to make room.
  virtual void set_idle(Connection& connection, bool is_idle) = 0;
  virtual void on_closed(Connection& connection) = 0;
  // False if the bodies of all connections would go beyond the limit.
  virtual bool take_body_bytes(size_t bytes) = 0;
  virtual void give_body_bytes(size_t bytes) = 0;
};

using TcpSocket =
    boost::asio::basic_stream_socket<boost::asio::ip::tcp,
                                     boost::asio::strand<boost::asio::io_context::executor_type>>;
using StrandTimer =
    boost::asio::basic_waitable_timer<std::chrono::steady_clock,
                                      boost::asio::wait_traits<std::chrono::steady_clock>,
                                      boost::asio::strand<boost::asio::io_context::executor_type>>;

class Connection final : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionHost& host, TcpSocket socket, std::string peer);

  // On the strand from here on, but close_soon().
  void start();
  // Any thread: closes it as if the client had gone.
  void close_soon();
  // Any thread: the same, unless a request has begun.
  void close_if_idle_soon();
  // Any thread: answers 503 and closes.
  void refuse_soon();

  class Reply;

 private:
  using Error = boost::system::error_code;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class Phase { idle, header, body, answering, closed };

  void begin_request();
  void read_more();
  void on_read(const Error& error, size_t count);
  void on_bytes();
  bool parse(Error& error);
  void on_header();
  void on_request();
  void refuse(const Error& error);
  // Answers without a handler, and closes: what is left of the request was not read.
  void refuse(HttpResponse response);
  void set_deadline(std::chrono::milliseconds timeout);
  void on_deadline(const Error& error);

  void start_ping();
  void on_ping(const Error& error);
  void pump();
  void on_written(const Error& error, size_t count);
  void finish_answer();
  void close();
  void free_body();
  HttpRequest make_request() const;

  ConnectionHost& host_;
  TcpSocket socket_;
  StrandTimer deadline_;  // of what is read, or written
  StrandTimer ping_;
  const std::string peer_;

  Phase phase_ = Phase::idle;
  bool reading_ = false;
  bool closing_ = false;  // once what is written has gone
  bool keep_alive_ = true;
  bool writing_ = false;
  boost::beast::flat_buffer input_;
  std::optional<Parser> parser_;
  std::shared_ptr<HttpRequest> request_;
  size_t body_bytes_taken_ = 0;
  TimePoint body_begun_;
  TimePoint last_write_;
  uint64_t request_count_ = 0;
  std::shared_ptr<Reply> reply_;
  std::string output_;  // being written
  size_t output_done_ = 0;
};

}  // namespace strata::serve
