#include "cli/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace strata::cli {

WakeableInput::WakeableInput() {
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) == 0) {
    wake_from_ = FileDescriptor(ends[0]);
    wake_to_ = FileDescriptor(ends[1]);
  }
}

void WakeableInput::wake() {
  const char byte = 0;
  [[maybe_unused]] const ssize_t written = ::write(wake_to_.get(), &byte, 1);
}

bool WakeableInput::read(std::string& bytes) {
  while (true) {
    pollfd fds[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_from_.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0 && errno != EINTR) return false;
    if ((fds[1].revents & POLLIN) != 0) return false;
    if ((fds[0].revents & (POLLERR | POLLNVAL)) != 0) return false;
    if ((fds[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    char piece[4096];
    const ssize_t count = ::read(STDIN_FILENO, piece, sizeof(piece));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.append(piece, static_cast<size_t>(count));
    return true;
  }
}

std::optional<std::string> PlainLines::next(const std::string& /*prompt*/) {
  while (true) {
    const size_t end = held_.find('\n', searched_);
    if (end != std::string::npos) {
      std::string line = held_.substr(0, end);
      held_.erase(0, end + 1);
      searched_ = 0;
      return line;
    }
    searched_ = held_.size();
    if (input_.read(held_)) continue;
    if (held_.empty()) return std::nullopt;
    held_ += '\n';  // a last line without its end
  }
}

}  // namespace strata::cli
