#include "serve/openai/image_address.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <array>
#include <string>

#include "runtime/base/ascii.h"
#include "runtime/base/utf8.h"

namespace strata::serve {
namespace {

std::string_view host_of(std::string_view rest) {
  std::string_view authority = rest.substr(0, rest.find_first_of("/?#\\"));
  const size_t user = authority.rfind('@');
  if (user != std::string_view::npos) authority.remove_prefix(user + 1);
  if (authority.starts_with('[')) return authority.substr(1, authority.find(']') - 1);
  return authority.substr(0, authority.find(':'));
}

bool is_private_v4(uint32_t ip) {
  const auto in = [ip](uint32_t net, int bits) {
    return (ip >> (32 - bits)) == (net >> (32 - bits));
  };
  return in(0x00000000, 8) || in(0x0A000000, 8) || in(0x7F000000, 8) || in(0x64400000, 10) ||
         in(0xA9FE0000, 16) || in(0xAC100000, 12) || in(0xC0A80000, 16) || in(0xE0000000, 3);
}

// Also for numbers that only the system's old parser takes: 2130706433, 0x7f.1.
bool is_local_host(const std::string& host) {
  if (host.empty() || host == "localhost" || host.ends_with(".localhost") ||
      host.ends_with(".local") || host.ends_with(".internal")) {
    return true;
  }
  in_addr v4{};
  if (::inet_aton(host.c_str(), &v4) != 0) return is_private_v4(ntohl(v4.s_addr));
  std::array<unsigned char, 16> v6{};
  if (::inet_pton(AF_INET6, host.c_str(), v6.data()) != 1) {
    return host.find('.') == std::string::npos;  // a bare name is one of this network
  }
  // 2000::/3 is what the world can reach.
  return (v6[0] & 0xE0) != 0x20;
}

}  // namespace

Status check_image_address(std::string_view address) {
  std::string lower(address.substr(0, 2048));
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (lower.starts_with("data:")) return ok_status();
  const size_t begin = lower.starts_with("http://") ? 7 : lower.starts_with("https://") ? 8 : 0;
  if (begin == 0) {
    return invalid_argument(
        fmt::format("'{}' is no data:, http: or https: address", printable(address, 60)));
  }
  const std::string host(host_of(std::string_view(lower).substr(begin)));
  if (is_local_host(host)) {
    return invalid_argument(
        fmt::format("'{}' is an address of this machine or its network", printable(address, 60)));
  }
  return ok_status();
}

}  // namespace strata::serve
