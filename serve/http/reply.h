// Connection::Reply: what HttpReply's callers wrote and the connection has not taken yet.
// For serve/http/*.cpp only.
#pragma once

#include "serve/http/connection.h"

namespace strata::serve {

class Connection::Reply final : public HttpReply {
 public:
  Reply(std::weak_ptr<Connection> connection,
        boost::asio::strand<boost::asio::io_context::executor_type> strand,
        std::shared_ptr<const HttpRequest> request, const HttpHandler& handler, size_t bytes_max,
        bool keep_alive);
  ~Reply() override;

  bool send(HttpResponse response) override;
  void open_stream(std::string_view content_type) override;
  bool write(std::string piece) override;
  void end_stream() override;
  void on_gone(std::function<void()> handler) override;

  // For the connection, on its strand.
  std::string take();
  bool ended() const;
  // Whether the buffer overflowed, so that the client must be left.
  bool overflowed() const;
  bool is_event_stream() const;
  void ping();
  // Runs the handlers.
  void set_gone();

 private:
  void append_head(const HttpResponse& response, bool chunked) STRATA_REQUIRES(mutex_);
  void append_piece(std::string_view piece) STRATA_REQUIRES(mutex_);
  void wake();

  const std::weak_ptr<Connection> connection_;
  const boost::asio::strand<boost::asio::io_context::executor_type> strand_;
  const std::shared_ptr<const HttpRequest> request_;
  const HttpHandler& handler_;
  const size_t bytes_max_;
  const bool keep_alive_;
  const bool chunked_;  // HTTP/1.1; older clients read up to the connection's end, which then comes

  mutable Mutex mutex_;
  std::string pending_ STRATA_GUARDED_BY(mutex_);
  std::string stream_type_ STRATA_GUARDED_BY(mutex_);
  bool head_sent_ STRATA_GUARDED_BY(mutex_) = false;
  bool ended_ STRATA_GUARDED_BY(mutex_) = false;
  bool gone_ STRATA_GUARDED_BY(mutex_) = false;
  bool overflowed_ STRATA_GUARDED_BY(mutex_) = false;
  std::function<void()> on_gone_ STRATA_GUARDED_BY(mutex_);
};

}  // namespace strata::serve
