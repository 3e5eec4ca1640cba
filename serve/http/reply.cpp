#include "serve/http/reply.h"

#include <fmt/format.h>

#include <boost/asio/post.hpp>

namespace strata::serve {

Connection::Reply::Reply(std::weak_ptr<Connection> connection,
                         boost::asio::strand<boost::asio::io_context::executor_type> strand,
                         std::shared_ptr<const HttpRequest> request, const HttpHandler& handler,
                         size_t bytes_max, bool keep_alive)
    : connection_(std::move(connection)),
      strand_(std::move(strand)),
      request_(std::move(request)),
      handler_(handler),
      bytes_max_(bytes_max),
      keep_alive_(keep_alive),
      chunked_(request_->version != "1.0") {}

Connection::Reply::~Reply() = default;

void Connection::Reply::append_head(const HttpResponse& response, bool chunked) {
  HttpResponse decorated = response;
  if (handler_.decorate) handler_.decorate(*request_, decorated);
  head_sent_ = true;
  pending_ += fmt::format("HTTP/1.1 {} {}\r\nx-request-id: {}\r\n", decorated.status,
                          http_reason(decorated.status), request_->id);
  if (decorated.status != 204) {
    pending_ += fmt::format("content-type: {}\r\nx-content-type-options: nosniff\r\n",
                            decorated.content_type);
  }
  for (const auto& [name, value] : decorated.headers) {
    pending_ += fmt::format("{}: {}\r\n", name, value);
  }
  if (chunked) {
    pending_ += "cache-control: no-store\r\n";
    if (chunked_) pending_ += "transfer-encoding: chunked\r\n";
  } else if (decorated.status != 204) {
    pending_ += fmt::format("content-length: {}\r\n", decorated.body.size());
  }
  pending_ += keep_alive_ ? "connection: keep-alive\r\n\r\n" : "connection: close\r\n\r\n";
}

void Connection::Reply::append_piece(std::string_view piece) {
  if (piece.empty()) return;  // an empty chunk would be the end
  if (!chunked_) {
    pending_ += piece;
    return;
  }
  pending_ += fmt::format("{:x}\r\n", piece.size());
  pending_ += piece;
  pending_ += "\r\n";
}

bool Connection::Reply::send(HttpResponse response) {
  {
    const MutexLock lock(mutex_);
    if (head_sent_) return false;
    if (gone_ || ended_) return true;
    append_head(response, false);
    if (request_->method != "HEAD") pending_ += response.body;
    ended_ = true;
    on_gone_ = nullptr;
  }
  wake();
  return true;
}

void Connection::Reply::open_stream(std::string_view content_type) {
  const MutexLock lock(mutex_);
  if (stream_type_.empty()) stream_type_ = content_type;
}

bool Connection::Reply::write(std::string piece) {
  bool ok = true;
  {
    const MutexLock lock(mutex_);
    if (gone_ || ended_ || overflowed_) return false;
    if (!head_sent_) append_head({.status = 200, .content_type = stream_type_}, true);
    if (pending_.size() + piece.size() > bytes_max_) {
      overflowed_ = true;
      pending_.clear();
      ok = false;
    } else {
      append_piece(piece);
    }
  }
  wake();
  return ok;
}

void Connection::Reply::end_stream() {
  {
    const MutexLock lock(mutex_);
    if (gone_ || ended_) return;
    if (!head_sent_) append_head({.status = 200, .content_type = stream_type_}, true);
    if (chunked_) pending_ += "0\r\n\r\n";
    ended_ = true;
    on_gone_ = nullptr;
  }
  wake();
}

void Connection::Reply::on_gone(std::function<void()> handler) {
  {
    const MutexLock lock(mutex_);
    if (ended_) return;
    if (!gone_) {
      on_gone_ = std::move(handler);
      return;
    }
  }
  handler();
}

std::string Connection::Reply::take() {
  const MutexLock lock(mutex_);
  return std::exchange(pending_, {});
}

bool Connection::Reply::ended() const {
  const MutexLock lock(mutex_);
  return ended_;
}

bool Connection::Reply::overflowed() const {
  const MutexLock lock(mutex_);
  return overflowed_;
}

bool Connection::Reply::is_event_stream() const {
  const MutexLock lock(mutex_);
  return stream_type_ == kEventStreamType && !ended_ && !gone_;
}

void Connection::Reply::ping() { write(": ping\n\n"); }

void Connection::Reply::set_gone() {
  std::function<void()> handler;
  {
    const MutexLock lock(mutex_);
    if (gone_ || ended_) return;
    gone_ = true;
    pending_.clear();
    handler = std::exchange(on_gone_, nullptr);
  }
  if (handler) handler();
}

void Connection::Reply::wake() {
  boost::asio::post(strand_, [connection = connection_] {
    if (const auto self = connection.lock()) self->pump();
  });
}

}  // namespace strata::serve
