// Why an address cannot be reached, in words; see channel.h.
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "backends/remote/channel.h"
#include "runtime/base/file_descriptor.h"

namespace strata::remote {
namespace {

constexpr int kConnectMs = 1000;

// 0 if the connection stands; else what the system said.
int try_connect(const addrinfo& to) {
  const FileDescriptor fd(
      ::socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol));
  if (fd.get() < 0) return errno;
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait{.fd = fd.get(), .events = POLLOUT, .revents = 0};
  if (::poll(&wait, 1, kConnectMs) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

struct Obstacle {
  std::string what;
  std::string hint;
};

Obstacle obstacle_of(int error) {
  switch (error) {
    case 0:
      return {"what listens there does not speak gRPC, or has only just begun to",
              "is that the port of a strata process? try again in a moment"};
    case ECONNREFUSED:
      return {"connection refused, nothing listens on that port",
              "is it running, and is that its address?"};
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
      return {"there is no route to that host",
              "is the host up, and is this machine on a network that leads there?"};
    case ETIMEDOUT:
      return {"the host does not answer",
              "is the address right, is the host up, does a firewall let the port through?"};
    default:
      return {std::strerror(error), "is it running, and is that its address?"};
  }
}

Obstacle obstacle_of_lookup(int error) {
  if (error == EAI_NONAME || error == EAI_NODATA || error == EAI_ADDRFAMILY) {
    return {"there is no host of that name",
            "is the name spelled right, and does this machine's DNS or /etc/hosts know it?"};
  }
  return {fmt::format("the name cannot be looked up: {}", ::gai_strerror(error)),
          "does this machine reach a DNS server? an address in numbers needs none"};
}

Obstacle look(const Address& address) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &wanted, &list);
  if (error != 0) return obstacle_of_lookup(error);
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  int first = 0;  // of a name's addresses, which gRPC tries in this order too
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next) {
    const int failed = try_connect(*each);
    if (failed == 0) return obstacle_of(0);
    if (first == 0 || failed == ECONNREFUSED) first = failed;
  }
  return obstacle_of(first);
}

}  // namespace

Status why_unreachable(const Address& address, std::string_view who) {
  Obstacle found = look(address);
  return unavailable(fmt::format("cannot reach {} at {}: {}", who, address.text(), found.what),
                     std::move(found.hint));
}

}  // namespace strata::remote
