#include "tests/cluster/hung_thread.h"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace strata::test {

HungThread::HungThread(pid_t pid, const std::string& name) {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), error)) {
    std::ifstream file(entry.path() / "comm");
    std::string found;
    std::getline(file, found);
    if (found != name) continue;
    const pid_t thread = std::atoi(entry.path().filename().c_str());
    if (::ptrace(PTRACE_SEIZE, thread, nullptr, nullptr) != 0) return;
    if (::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr) != 0) return;
    int status = 0;
    if (::waitpid(thread, &status, __WALL) == thread) thread_ = thread;
    return;
  }
}

HungThread::~HungThread() {
  if (thread_ > 0) ::ptrace(PTRACE_DETACH, thread_, nullptr, nullptr);
}

}  // namespace strata::test
