#include "cli/tcp_bytes.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <filesystem>

namespace strata::cli {

uint64_t own_tcp_bytes() {
  uint64_t total = 0;
  std::error_code failed;
  std::filesystem::directory_iterator entry("/proc/self/fd", failed);
  for (; !failed && entry != std::filesystem::directory_iterator(); entry.increment(failed)) {
    const int fd = std::atoi(entry->path().filename().c_str());
    tcp_info info{};
    socklen_t size = sizeof(info);
    // Fails for what is no TCP socket. A listening one counts other things in the same fields.
    if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) continue;
    int listens = 0;
    socklen_t listens_size = sizeof(listens);
    ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_size);
    if (listens == 0) total += info.tcpi_bytes_acked + info.tcpi_bytes_received;
  }
  return total;
}

}  // namespace strata::cli
