#include "backends/remote/listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "runtime/base/log.h"
#include "runtime/base/thread_start.h"

namespace strata::remote {
namespace {

constexpr int kWaitingConnectionsMax = 1024;
// Connections taken from one socket before the next one's turn, and before a stop is heard.
constexpr int kAcceptedAtOnceMax = 64;
// After a failure that is not the connection's own, such as a lack of descriptors or memory.
constexpr std::chrono::milliseconds kPauseAfterFailure{20};

int descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 20));
}

bool is_no_fault_of_ours(int error) {
  return error == ECONNABORTED || error == EPROTO || error == EINTR || error == EPERM;
}

// Of the error of socket(), bind() or listen().
Status explain(const Address& address, int error) {
  if (error == EADDRINUSE) {
    return {StatusCode::already_exists,
            fmt::format("cannot listen on {}: the port is taken", address.text()),
            "choose another with --listen HOST:PORT, or end the program that holds it"};
  }
  if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) {
    return invalid_argument(
        fmt::format("cannot listen on {}: not an address of this machine", address.text()));
  }
  if (error == EACCES) {
    return invalid_argument(
        fmt::format("cannot listen on {}: ports below 1024 need root", address.text()),
        "choose a port from 1024 on");
  }
  return unavailable(fmt::format("cannot listen on {}: {}", address.text(), std::strerror(error)));
}

void set_option(const FileDescriptor& socket, int level, int name, int value) {
  ::setsockopt(socket.get(), level, name, &value, sizeof(value));
}

// The port's place is the same in both families' addresses.
static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

Result<std::unique_ptr<Listener>> Listener::bind(const Address& address, int descriptors_max) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &list)) {
    return invalid_argument(fmt::format("cannot listen on {}: host '{}' is not known: {}",
                                        address.text(), address.host, ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> found(list, ::freeaddrinfo);
  std::unique_ptr<Listener> listener(new Listener());
  listener->descriptors_max_ =
      descriptors_max > 0 ? descriptors_max : descriptor_limit() - kDescriptorsKeptBack;
  // The port that the system chose for the first address may be taken at the second.
  constexpr int kTriesMax = 8;
  Status listening;
  for (int i = 0; i < kTriesMax; ++i) {
    listening = listener->add_all(found.get(), address);
    if (address.port != 0 || listening.code() != StatusCode::already_exists) break;
  }
  TRY(std::move(listening));
  listener->stop_event_ = FileDescriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!listener->stop_event_.is_open()) return explain(address, errno);
  return listener;
}

Status Listener::add_all(const addrinfo* list, const Address& address) {
  sockets_.clear();
  port_ = address.port;
  Status last;
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    Status added = add(*each, address);
    // A machine without IPv6 still has its IPv4.
    if (!added.ok() && added.code() != StatusCode::invalid_argument) return added;
    if (!added.ok()) last = std::move(added);
  }
  return sockets_.empty() ? last : ok_status();
}

Status Listener::add(const addrinfo& found, const Address& address) {
  FileDescriptor socket(::socket(found.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.is_open()) return explain(address, errno);
  // Connections inherit these. A port is free again as soon as its process has ended.
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  if (found.ai_family == AF_INET6)
    set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, !address.is_wildcard());
  sockaddr_storage bound{};
  std::memcpy(&bound, found.ai_addr, found.ai_addrlen);
  auto* const as_ip4 = reinterpret_cast<sockaddr_in*>(&bound);
  as_ip4->sin_port = htons(port_);
  socklen_t size = found.ai_addrlen;
  auto* const as_any = reinterpret_cast<sockaddr*>(&bound);
  if (::bind(socket.get(), as_any, size) != 0 ||
      ::listen(socket.get(), kWaitingConnectionsMax) != 0 ||
      ::getsockname(socket.get(), as_any, &size) != 0) {
    return explain(address, errno);
  }
  port_ = ntohs(as_ip4->sin_port);
  sockets_.push_back(std::move(socket));
  return ok_status();
}

Listener::~Listener() { stop(); }

Status Listener::start(Take take) {
  return start_thread(thread_, [this, take = std::move(take)] { run(take); });
}

void Listener::stop() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    while (::write(stop_event_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  sockets_.clear();
}

void Listener::run(const Take& take) {
  std::vector<pollfd> waits = {{stop_event_.get(), POLLIN, 0}};
  for (const FileDescriptor& socket : sockets_) waits.push_back({socket.get(), POLLIN, 0});
  for (;;) {
    if (::poll(waits.data(), waits.size(), -1) < 0) {
      if (errno != EINTR) std::this_thread::sleep_for(kPauseAfterFailure);
      continue;
    }
    if (waits[0].revents != 0) return;
    for (size_t i = 1; i < waits.size(); ++i) {
      if (waits[i].revents == 0) continue;
      for (int n = 0; n < kAcceptedAtOnceMax && accept_one(waits[i].fd, take); ++n) {
      }
    }
  }
}

bool Listener::accept_one(int listening, const Take& take) {
  FileDescriptor connection(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.is_open()) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (is_no_fault_of_ours(errno)) return true;
    if (std::has_single_bit(++failures_)) {
      log::warn("cannot accept a connection ({} times): {}", failures_, std::strerror(errno));
    }
    std::this_thread::sleep_for(kPauseAfterFailure);
    return false;
  }
  // Descriptors are given out from the lowest free one: this one tells how many are open at least.
  if (connection.get() >= descriptors_max_) {
    if (std::has_single_bit(++refused_)) {
      log::warn("{} connections closed at once: {} descriptors are open", refused_,
                descriptors_max_);
    }
    return true;
  }
  take(listening, std::move(connection));
  return true;
}

}  // namespace strata::remote
