#include "serve/http/server.h"

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <list>
#include <map>
#include <thread>
#include <vector>

#include "backends/remote/listener.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/thread_start.h"
#include "serve/http/connection.h"

namespace strata::serve {
namespace {

namespace asio = boost::asio;

// How long stop() waits for connections to close.
constexpr auto kStopPatience = std::chrono::seconds(2);

// Threads that do jobs in the order in which they come.
class HandlerThreads {
 public:
  ~HandlerThreads() { stop(); }
  Status start(int count) {
    threads_.resize(static_cast<size_t>(count));
    for (std::thread& thread : threads_) TRY(start_thread(thread, [this] { run(); }));
    return ok_status();
  }
  void post(std::function<void()> job) {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
    wake_.notify_one();
  }
  void stop() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      jobs_.clear();
      wake_.notify_all();
    }
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void run() {
    while (true) {
      std::function<void()> job;
      {
        const MutexLock lock(mutex_);
        while (jobs_.empty() && !stopping_) wake_.wait(mutex_);
        if (stopping_) return;
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job();
    }
  }

  Mutex mutex_;
  CondVar wake_;
  // At most one for each connection.
  std::list<std::function<void()>> jobs_ STRATA_GUARDED_BY(mutex_);
  bool stopping_ STRATA_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

class ServerImpl final : public HttpServer, public ConnectionHost {
 public:
  ServerImpl(const HttpServerOptions& options, HttpHandler handler)
      : options_(options), handler_(std::move(handler)), work_(asio::make_work_guard(context_)) {}
  ~ServerImpl() override { stop(); }

  Status begin() {
    listener_ = TRY(remote::Listener::bind(options_.listen));
    address_ = options_.listen;
    address_.port = listener_->port();
    TRY(handlers_.start(options_.handler_threads));
    io_threads_.resize(static_cast<size_t>(options_.io_threads));
    for (std::thread& thread : io_threads_) {
      TRY(start_thread(thread, [this] { context_.run(); }));
    }
    return listener_->start(
        [this](int, FileDescriptor connection) { accept(std::move(connection)); });
  }

  const remote::Address& address() const override { return address_; }
  size_t connection_count() const override {
    const MutexLock lock(mutex_);
    return connections_.size();
  }

  void stop() override {
    if (stopped_.exchange(true)) return;
    if (listener_) listener_->stop();
    {
      const MutexLock lock(mutex_);
      for (const auto& [key, connection] : connections_) connection->close_soon();
      const TimePoint deadline = SystemClock().now() + kStopPatience;
      while (!connections_.empty() && all_closed_.wait_until(mutex_, deadline)) {
      }
    }
    handlers_.stop();
    work_.reset();
    context_.stop();
    for (std::thread& thread : io_threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  const HttpServerOptions& options() const override { return options_; }
  const HttpHandler& handler() const override { return handler_; }
  void dispatch(std::function<void()> job) override { handlers_.post(std::move(job)); }

  void set_idle(Connection& connection, bool is_idle) override {
    const MutexLock lock(mutex_);
    idle_.remove(&connection);
    if (is_idle) idle_.push_back(&connection);
  }
  void on_closed(Connection& connection) override {
    const MutexLock lock(mutex_);
    idle_.remove(&connection);
    connections_.erase(&connection);
    if (connections_.empty()) all_closed_.notify_all();
  }
  bool take_body_bytes(size_t bytes) override {
    if (body_bytes_.fetch_add(bytes) + bytes <= options_.bodies_bytes_max) return true;
    body_bytes_.fetch_sub(bytes);
    return false;
  }
  void give_body_bytes(size_t bytes) override { body_bytes_.fetch_sub(bytes); }

 private:
  // On the listener's thread.
  void accept(FileDescriptor descriptor) {
    sockaddr_storage name{};
    socklen_t size = sizeof(name);
    if (::getpeername(descriptor.get(), reinterpret_cast<sockaddr*>(&name), &size) != 0) return;
    boost::system::error_code error;
    TcpSocket socket(asio::make_strand(context_));
    const auto protocol = name.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4();
    socket.assign(protocol, descriptor.get(), error);
    if (error) return;
    descriptor.release();
    socket.set_option(asio::ip::tcp::no_delay(true), error);
    const auto peer = socket.remote_endpoint(error);
    const auto connection = std::make_shared<Connection>(
        *this, std::move(socket), error ? std::string() : peer.address().to_string(error));
    bool is_full = false;
    {
      const MutexLock lock(mutex_);
      is_full = connections_.size() >= options_.connections_max;
      if (is_full && !idle_.empty()) {
        idle_.front()->close_if_idle_soon();
        idle_.pop_front();
        is_full = false;
      }
      connections_.emplace(connection.get(), connection);
    }
    if (is_full) return connection->refuse_soon();
    connection->start();
  }

  const HttpServerOptions options_;
  const HttpHandler handler_;
  remote::Address address_;
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::unique_ptr<remote::Listener> listener_;
  std::vector<std::thread> io_threads_;
  HandlerThreads handlers_;
  std::atomic<bool> stopped_ = false;
  std::atomic<size_t> body_bytes_ = 0;

  mutable Mutex mutex_;
  CondVar all_closed_;
  std::map<Connection*, std::shared_ptr<Connection>> connections_ STRATA_GUARDED_BY(mutex_);
  std::list<Connection*> idle_ STRATA_GUARDED_BY(mutex_);  // the longest idle one first
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const HttpServerOptions& options,
                                                      HttpHandler handler) {
  auto server = std::make_unique<ServerImpl>(options, std::move(handler));
  TRY(server->begin());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace strata::serve
