#include "tests/support/command_run.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

namespace strata::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A file in memory that a child writes to or reads from.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("command-run", MFD_CLOEXEC)) {}
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }
  void fill(const std::string& text) const {
    ASSERT_EQ(::pwrite(fd_, text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    ::lseek(fd_, 0, SEEK_SET);
  }
  std::string text() const {
    std::string all(static_cast<size_t>(::lseek(fd_, 0, SEEK_END)), '\0');
    const ssize_t got = ::pread(fd_, all.data(), all.size(), 0);
    all.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return all;
  }

 private:
  int fd_;
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// What the terminal shows until the child's side is closed, or patience is over.
std::string read_terminal(int fd, steady_clock::time_point deadline) {
  std::string text;
  while (steady_clock::now() < deadline) {
    pollfd waiting{fd, POLLIN, 0};
    if (::poll(&waiting, 1, 50) <= 0) continue;
    char piece[4096];
    const ssize_t got = ::read(fd, piece, sizeof(piece));
    if (got <= 0) break;
    text.append(piece, static_cast<size_t>(got));
  }
  return text;
}

int wait_for_end(pid_t pid, steady_clock::time_point deadline) {
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    if (steady_clock::now() >= deadline) {
      ADD_FAILURE() << "the command took too long";
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return -1;
    }
    std::this_thread::sleep_for(milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments,
                          const CommandOptions& options) {
  const MemoryFile in;
  const MemoryFile out;
  const MemoryFile err;
  in.fill(options.input);
  std::vector<std::string> environment = options.environment;
  for (char** each = environ; *each != nullptr; ++each) environment.emplace_back(*each);
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(environment);
  winsize size{};
  size.ws_row = 40;
  size.ws_col = 100;
  int terminal = -1;
  const pid_t pid = options.on_terminal ? ::forkpty(&terminal, nullptr, nullptr, &size) : ::fork();
  if (pid < 0) {
    ADD_FAILURE() << "cannot start " << arguments.front();
    return {};
  }
  if (pid == 0) {
    ::dup2(in.fd(), 0);
    if (!options.on_terminal) {
      ::dup2(out.fd(), 1);
      ::dup2(err.fd(), 2);
    }
    ::execve(argv.front(), argv.data(), envp.data());
    ::_exit(127);
  }
  const auto deadline = steady_clock::now() + options.patience;
  CommandResult result;
  if (options.on_terminal) result.out = read_terminal(terminal, deadline);
  result.exit_code = wait_for_end(pid, deadline);
  if (options.on_terminal) {
    ::close(terminal);
  } else {
    result.out = out.text();
    result.err = err.text();
  }
  return result;
}

}  // namespace strata::test
