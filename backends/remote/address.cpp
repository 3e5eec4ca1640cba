// Addresses as text: parsing, exposure, and what a listener is reached by.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "backends/remote/channel.h"

namespace strata::remote {
namespace {

constexpr const char* kAddressHint = "write HOST:PORT, such as 127.0.0.1:50051 or [::1]:50051";

Status bad_address(std::string_view text, std::string_view why) {
  std::string shown(text.substr(0, 100));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20) c = '?';
  }
  return invalid_argument(fmt::format("address '{}': {}", shown, why), kAddressHint);
}

Result<uint16_t> parse_port(std::string_view text, std::string_view digits, AddressUse use) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (digits.empty()) return bad_address(text, "the port after ':' is missing");
  if (error == std::errc::invalid_argument || end != digits.data() + digits.size()) {
    return bad_address(text, fmt::format("port '{}' is not a number", digits));
  }
  if (error == std::errc::result_out_of_range || port > 65535) {
    return bad_address(text, fmt::format("port {} is beyond 65535", digits));
  }
  if (port == 0 && use != AddressUse::listen) {
    return bad_address(text, "port 0 can only be listened on");
  }
  return static_cast<uint16_t>(port);
}

bool is_host_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '-' || c == '_';
}

// "fe80::1%eth0" has a zone, which is a network device's name.
bool is_ipv6(const std::string& host) {
  in6_addr address;
  const size_t percent = host.find('%');
  if (::inet_pton(AF_INET6, host.substr(0, percent).c_str(), &address) != 1) return false;
  if (percent == std::string::npos) return true;
  const std::string zone = host.substr(percent + 1);
  return !zone.empty() && zone.size() <= 15 &&
         std::all_of(zone.begin(), zone.end(), is_host_character);
}

std::optional<in6_addr> ipv6_of(const std::string& host) {
  in6_addr address;
  if (::inet_pton(AF_INET6, host.substr(0, host.find('%')).c_str(), &address) != 1) return {};
  return address;
}

// ::ffff:127.0.0.1 and its like.
bool is_mapped_loopback(const in6_addr& address) {
  return IN6_IS_ADDR_V4MAPPED(&address) && address.s6_addr[12] == 127;
}

// Digits and dots only, but no IPv4 address: a slip of the pen, not a name to look up.
bool is_broken_ipv4(const std::string& host) {
  in_addr address;
  return host.find_first_not_of("0123456789.") == std::string::npos &&
         ::inet_pton(AF_INET, host.c_str(), &address) != 1;
}

struct HostAndPort {
  std::string host;
  std::string_view port;
  bool has_port = false;
};

Result<HostAndPort> split(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return bad_address(text, "']' is missing");
    const std::string host(text.substr(1, close - 1));
    if (!is_ipv6(host)) return bad_address(text, "what stands in [] is not an IPv6 address");
    const std::string_view rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad_address(text, "':' must follow ']'");
    return HostAndPort{host, rest.empty() ? rest : rest.substr(1), !rest.empty()};
  }
  if (std::count(text.begin(), text.end(), ':') > 1) {
    const std::string host(text);
    if (!is_ipv6(host)) return bad_address(text, "more than one ':' but not an IPv6 address");
    return HostAndPort{host, {}, false};
  }
  const size_t colon = text.find(':');
  const std::string host(text.substr(0, colon));
  if (!std::all_of(host.begin(), host.end(), is_host_character) || host.size() > 253) {
    return bad_address(text, "the host has characters that no host name has");
  }
  if (is_broken_ipv4(host) && !host.empty()) return bad_address(text, "not an IPv4 address");
  if (colon == std::string_view::npos) return HostAndPort{host, {}, false};
  return HostAndPort{host, text.substr(colon + 1), true};
}

}  // namespace

std::string Address::text() const {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

bool Address::is_loopback() const {
  if (host == "localhost") return true;
  // One address may be written in several ways: "::1" is "0:0:0:0:0:0:0:1" too.
  if (const auto v6 = ipv6_of(host)) return IN6_IS_ADDR_LOOPBACK(&*v6) || is_mapped_loopback(*v6);
  in_addr address;
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 && (ntohl(address.s_addr) >> 24) == 127;
}

bool Address::is_wildcard() const {
  if (const auto v6 = ipv6_of(host)) return IN6_IS_ADDR_UNSPECIFIED(&*v6);
  return host == "0.0.0.0";
}

Result<Address> parse_address(std::string_view text, AddressUse use) {
  if (text.empty()) return bad_address(text, "it is empty");
  if (text.find_first_of(" \t\r\n") != std::string_view::npos) {
    return bad_address(text, "it has a space");
  }
  if (std::any_of(text.begin(), text.end(), [](char c) { return c < 0x21 || c > 0x7e; })) {
    return bad_address(text, "it has a character that no address has");
  }
  if (text.find(',') != std::string_view::npos) {
    return bad_address(text, "it has a comma; give one address");
  }
  if (text.find("://") != std::string_view::npos) {
    return bad_address(text, "it is a URL; leave out what stands before the host");
  }
  const HostAndPort parts = TRY(split(text));
  Address address{parts.host.empty() ? "127.0.0.1" : parts.host, kDefaultPort};
  if (parts.has_port) address.port = TRY(parse_port(text, parts.port, use));
  if (use == AddressUse::dial && address.is_wildcard()) {
    return bad_address(text, "it stands for all addresses of a host, and can only be listened on");
  }
  return address;
}

Address reachable_address(const Address& listening) {
  if (!listening.is_wildcard()) return listening;
  const int family = listening.host == "0.0.0.0" ? AF_INET : AF_INET6;
  Address found{family == AF_INET ? "127.0.0.1" : "::1", listening.port};
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return found;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
    if ((each->ifa_flags & IFF_UP) == 0 || (each->ifa_flags & IFF_LOOPBACK) != 0) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    char host[NI_MAXHOST];
    if (::getnameinfo(each->ifa_addr, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    // A link's own addresses need a zone that is another one elsewhere.
    if (std::string_view(host).find('%') != std::string_view::npos) continue;
    found.host = host;
    break;
  }
  ::freeifaddrs(list);
  return found;
}

Status check_exposure(const Address& address, bool insecure_network) {
  if (address.is_loopback() || insecure_network) return ok_status();
  return {StatusCode::permission_denied,
          fmt::format("{} is beyond this machine, and connections are not encrypted yet",
                      address.text()),
          "use 127.0.0.1, or --insecure-network in a network where you trust everybody"};
}

Result<Address> advertised_address(const Address& listen, std::string_view grpc_peer) {
  std::string host;
  if (grpc_peer.starts_with("ipv4:")) {
    host = grpc_peer.substr(5, grpc_peer.rfind(':') - 5);
  } else if (grpc_peer.starts_with("ipv6:")) {
    // "ipv6:[::1]:4711"; gRPC writes the brackets as %5B and %5D, a zone's % as %25.
    const std::string_view rest = grpc_peer.substr(5);
    const bool escaped = rest.starts_with("%5B");
    const size_t begin = escaped ? 3 : 1;
    const size_t end = rest.find(escaped ? "%5D" : "]");
    if (end != std::string_view::npos && end >= begin) host = rest.substr(begin, end - begin);
    if (const size_t zone = host.find("%25"); zone != std::string::npos) host.erase(zone + 1, 2);
  }
  const Address seen{host, listen.port};
  if (listen.is_wildcard()) {
    if (!host.empty()) return seen;
    return invalid_argument(fmt::format("cannot tell a host from peer '{}'", grpc_peer));
  }
  if (listen.is_loopback() && !host.empty() && !seen.is_loopback()) {
    return invalid_argument(
        fmt::format("the worker comes from {} but listens on {}, where no other machine reaches it",
                    host, listen.text()),
        "start it with --listen 0.0.0.0:0, or with the address that others know it by");
  }
  return listen;
}

}  // namespace strata::remote
