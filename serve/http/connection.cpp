#include "serve/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>

#include "runtime/base/ascii.h"
#include "runtime/base/random.h"
#include "serve/http/reply.h"

namespace strata::serve {
namespace {

namespace http = boost::beast::http;

constexpr size_t kReadBytes = size_t{16} << 10;
// Of requests that wait for the answer to the one before; what is more stays with the system.
constexpr size_t kPipelinedBytesMax = size_t{64} << 10;
// How long a client that was refused may go on sending before the connection is closed.
constexpr std::chrono::milliseconds kLingerTime{2000};
constexpr size_t kRequestIdMax = 64;

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= kRequestIdMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return is_ascii_letter(c) || is_ascii_digit(c) || c == '-' || c == '_' || c == '.';
         });
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace

Connection::Connection(ConnectionHost& host, TcpSocket socket, std::string peer)
    : host_(host),
      socket_(std::move(socket)),
      deadline_(socket_.get_executor()),
      ping_(socket_.get_executor()),
      peer_(std::move(peer)) {}

void Connection::start() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->begin_request(); });
}

void Connection::close_soon() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] { self->close(); });
}

void Connection::close_if_idle_soon() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ == Phase::idle) self->close();
  });
}

void Connection::refuse_soon() {
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    HttpResponse response = error_response(503, "too many connections are open; try again later");
    response.headers.emplace_back("retry-after", "1");
    self->refuse(std::move(response));
  });
}

// --- Reading -------------------------------------------------------------------------------------

void Connection::begin_request() {
  if (phase_ == Phase::closed) return;
  parser_.emplace();
  parser_->header_limit(static_cast<uint32_t>(host_.options().header_bytes_max));
  parser_->body_limit(host_.options().body_bytes_max);
  phase_ = Phase::idle;
  if (input_.size() > 0) return on_bytes();
  host_.set_idle(*this, true);
  // A connection that has never said anything gets less patience.
  set_deadline(request_count_ == 0 ? host_.options().header_timeout : host_.options().idle_timeout);
  read_more();
}

void Connection::read_more() {
  if (reading_ || phase_ == Phase::closed) return;
  reading_ = true;
  socket_.async_read_some(input_.prepare(kReadBytes),
                          [self = shared_from_this()](const Error& error, size_t count) {
                            self->on_read(error, count);
                          });
}

void Connection::on_read(const Error& error, size_t count) {
  reading_ = false;
  if (phase_ == Phase::closed) return;
  if (error) return close();
  input_.commit(count);
  if (closing_) {
    input_.consume(input_.size());
    return read_more();
  }
  if (phase_ != Phase::answering) return on_bytes();
  if (input_.size() < kPipelinedBytesMax) read_more();
}

void Connection::on_bytes() {
  if (phase_ == Phase::idle) {
    host_.set_idle(*this, false);
    phase_ = Phase::header;
    set_deadline(host_.options().header_timeout);
  }
  while (phase_ == Phase::header || phase_ == Phase::body) {
    if (parser_->is_header_done() && phase_ == Phase::header) {
      on_header();
    } else if (parser_->is_done()) {
      on_request();
    } else {
      if (input_.size() == 0) return read_more();
      Error error;
      const size_t used = parser_->put(input_.data(), error);
      input_.consume(used);
      if (error && error != http::error::need_more) return refuse(error);
      const size_t body = parser_->get().body().size();
      if (body > body_bytes_taken_) {
        if (!host_.take_body_bytes(body - body_bytes_taken_)) {
          return refuse(error_response(503, "too many large requests arrive at once"));
        }
        body_bytes_taken_ = body;
      }
      if (phase_ == Phase::body) {
        const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
            SystemClock().now() - body_begun_);
        set_deadline(std::min(
            host_.options().body_timeout,
            std::max(host_.options().body_total_timeout - spent, std::chrono::milliseconds(0))));
      }
      if (error == http::error::need_more) return read_more();
    }
  }
}

HttpRequest Connection::make_request() const {
  const auto& message = parser_->get();
  HttpRequest request;
  request.method = std::string_view(message.method_string());
  const std::string_view target(message.target());
  const size_t mark = target.find('?');
  request.path = target.substr(0, mark);
  if (mark != std::string_view::npos) request.query = target.substr(mark + 1);
  request.version = message.version() == 11 ? "1.1" : "1.0";
  request.peer = peer_;
  for (const auto& field : message) {
    request.headers.emplace_back(lower_case(std::string_view(field.name_string())),
                                 std::string_view(field.value()));
  }
  const std::string_view id = request.header("x-request-id");
  request.id = is_request_id(id) ? std::string(id) : "req-" + random_hex(12);
  return request;
}

void Connection::on_header() {
  ++request_count_;
  request_ = std::make_shared<HttpRequest>(make_request());
  keep_alive_ = request_->version == "1.1" && parser_->keep_alive();
  if (auto refusal = host_.handler().check(*request_)) {
    // A request without a body leaves the connection as it should be.
    if (!parser_->is_done()) return refuse(std::move(*refusal));
    phase_ = Phase::answering;
    reply_ =
        std::make_shared<Reply>(weak_from_this(), socket_.get_executor(), request_, host_.handler(),
                                host_.options().stream_bytes_max, keep_alive_);
    reply_->send(std::move(*refusal));
    return;
  }
  phase_ = Phase::body;
  body_begun_ = SystemClock().now();
  set_deadline(host_.options().body_timeout);
  if (!parser_->is_done() && request_->header("expect") == "100-continue") {
    Error ignored;
    static constexpr std::string_view kGoOn = "HTTP/1.1 100 Continue\r\n\r\n";
    socket_.write_some(boost::asio::buffer(kGoOn.data(), kGoOn.size()), ignored);
  }
}

void Connection::on_request() {
  request_->body = std::move(parser_->get().body());
  phase_ = Phase::answering;
  deadline_.cancel();
  reply_ = std::make_shared<Reply>(weak_from_this(), socket_.get_executor(), request_,
                                   host_.handler(), host_.options().stream_bytes_max, keep_alive_);
  start_ping();
  if (input_.size() < kPipelinedBytesMax) read_more();
  host_.dispatch([&handler = host_.handler(), request = request_, reply = reply_]() mutable {
    handler.handle(std::move(request), std::move(reply));
  });
}

void Connection::refuse(const Error& error) {
  HttpResponse response;
  if (error == http::error::header_limit) {
    response = error_response(431, fmt::format("the request's header has more than {} bytes",
                                               host_.options().header_bytes_max));
  } else if (error == http::error::body_limit) {
    response = error_response(413, fmt::format("the request's body has more than {} bytes",
                                               host_.options().body_bytes_max));
  } else {
    response = error_response(400, fmt::format("this is no HTTP/1.1 request: {}", error.message()));
  }
  refuse(std::move(response));
}

void Connection::refuse(HttpResponse response) {
  keep_alive_ = false;
  closing_ = true;
  phase_ = Phase::answering;
  if (!request_) {
    request_ = std::make_shared<HttpRequest>();
    request_->id = "req-" + random_hex(12);
    request_->version = "1.1";
  }
  reply_ = std::make_shared<Reply>(weak_from_this(), socket_.get_executor(), request_,
                                   host_.handler(), host_.options().stream_bytes_max, false);
  reply_->send(std::move(response));
}

// --- Time ----------------------------------------------------------------------------------------

void Connection::set_deadline(std::chrono::milliseconds timeout) {
  deadline_.expires_after(timeout);
  deadline_.async_wait(
      [self = shared_from_this()](const Error& error) { self->on_deadline(error); });
}

void Connection::on_deadline(const Error& error) {
  if (error || phase_ == Phase::closed || deadline_.expiry() > SystemClock().now()) return;
  const bool is_reading = phase_ == Phase::header || phase_ == Phase::body;
  if (!is_reading) return close();
  refuse(error_response(408, phase_ == Phase::header ? "the request's header took too long"
                                                     : "the request's body took too long"));
}

void Connection::start_ping() {
  last_write_ = SystemClock().now();
  ping_.expires_after(host_.options().ping_interval);
  ping_.async_wait([self = shared_from_this()](const Error& error) { self->on_ping(error); });
}

void Connection::on_ping(const Error& error) {
  if (error || phase_ != Phase::answering || !reply_) return;
  const bool is_silent = SystemClock().now() - last_write_ >= host_.options().ping_interval;
  if (is_silent && reply_->is_event_stream()) reply_->ping();
  start_ping();
}

// --- Writing -------------------------------------------------------------------------------------

void Connection::pump() {
  if (writing_ || phase_ != Phase::answering || !reply_) return;
  if (reply_->overflowed()) return close();
  const bool is_all = reply_->ended();  // asked first: what comes before the end is then there
  output_ = reply_->take();
  output_done_ = 0;
  if (output_.empty()) {
    if (is_all) finish_answer();
    return;
  }
  writing_ = true;
  on_written({}, 0);
}

void Connection::on_written(const Error& error, size_t count) {
  if (phase_ == Phase::closed) return;
  if (error) return close();
  output_done_ += count;
  if (output_done_ == output_.size()) {
    writing_ = false;
    deadline_.cancel();
    last_write_ = SystemClock().now();
    return pump();
  }
  set_deadline(host_.options().write_timeout);
  socket_.async_write_some(
      boost::asio::buffer(output_.data() + output_done_, output_.size() - output_done_),
      [self = shared_from_this()](const Error& failure, size_t written) {
        self->on_written(failure, written);
      });
}

void Connection::finish_answer() {
  ping_.cancel();
  deadline_.cancel();
  reply_.reset();
  request_.reset();
  free_body();
  if (keep_alive_) return begin_request();
  // The client's unread bytes would make the system drop the answer along with the connection.
  Error ignored;
  socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send, ignored);
  closing_ = true;
  set_deadline(kLingerTime);
  input_.consume(input_.size());
  read_more();
}

void Connection::free_body() { host_.give_body_bytes(std::exchange(body_bytes_taken_, 0)); }

void Connection::close() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  if (reply_) reply_->set_gone();
  reply_.reset();
  request_.reset();
  free_body();
  Error ignored;
  deadline_.cancel();
  ping_.cancel();
  socket_.close(ignored);
  host_.on_closed(*this);
}

}  // namespace strata::serve
