#include "serve/local_cluster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runtime/base/random.h"

namespace strata::serve {
namespace {

constexpr auto kStopGrace = std::chrono::seconds(2);
constexpr size_t kTokenBytes = 32;
constexpr auto kReadyInterval = std::chrono::milliseconds(50);

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& text : strings) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void become(const char* binary, char** arguments, char** environment, int log_fd,
                         pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // it ended before the line above
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  // A Ctrl-C at the terminal is the parent's to handle.
  ::setpgid(0, 0);
  const int null_fd = ::open("/dev/null", O_RDWR);
  ::dup2(null_fd, 0);
  ::dup2(log_fd, 1);
  ::dup2(log_fd, 2);
  ::execve(binary, arguments, environment);
  ::_exit(127);
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(
    const std::string& binary, const std::vector<std::string>& arguments,
    const std::vector<std::string>& environment) {
  std::unique_ptr<ChildProcess> child(new ChildProcess());
  child->log_ = FileDescriptor(::memfd_create("strata-log", MFD_CLOEXEC));
  if (!child->log_.is_open()) return from_errno(errno, "cannot keep a log in memory");
  ::fcntl(child->log_.get(), F_SETFL, O_APPEND);
  std::vector<std::string> argument_copies = {binary};
  argument_copies.insert(argument_copies.end(), arguments.begin(), arguments.end());
  std::vector<std::string> environment_copies = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) environment_copies.emplace_back(*entry);
  std::vector<char*> argv = pointers(argument_copies);
  std::vector<char*> envp = pointers(environment_copies);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return from_errno(errno, "cannot start a process");
  if (pid == 0) become(binary.c_str(), argv.data(), envp.data(), child->log_.get(), parent);
  child->pid_ = pid;
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && !ended_) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, &wait_status_, 0);
  }
}

bool ChildProcess::is_running() {
  if (!ended_ && ::waitpid(pid_, &wait_status_, WNOHANG) == pid_) ended_ = true;
  return !ended_;
}

void ChildProcess::signal(int number) {
  if (is_running()) ::kill(pid_, number);
}

void ChildProcess::stop(Duration grace) {
  signal(SIGTERM);
  const TimePoint deadline = SystemClock().now() + grace;
  while (is_running() && SystemClock().now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!is_running()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, &wait_status_, 0);
  ended_ = true;
}

std::string ChildProcess::end_text() {
  if (is_running()) return {};
  if (WIFEXITED(wait_status_)) return fmt::format("exit code {}", WEXITSTATUS(wait_status_));
  return fmt::format("signal {}", WTERMSIG(wait_status_));
}

std::string ChildProcess::last_lines(size_t bytes_max) const {
  struct stat info {};
  if (::fstat(log_.get(), &info) != 0) return {};
  const size_t size = static_cast<size_t>(info.st_size);
  std::string text(std::min(size, bytes_max), '\0');
  const ssize_t count =
      ::pread(log_.get(), text.data(), text.size(), static_cast<off_t>(size - text.size()));
  text.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return text;
}

uint64_t ChildProcess::peak_rss_bytes() const {
  std::ifstream status(fmt::format("/proc/{}/status", pid_));
  std::string line;
  while (std::getline(status, line)) {
    if (line.rfind("VmHWM:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  }
  return 0;
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(const LocalClusterOptions& options,
                                                          ProgressDisplay& display,
                                                          std::stop_token stop) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(options));
  ServingOptions serving = options.serving;
  serving.workers = options.workers;
  const std::string token = random_hex(kTokenBytes);
  cluster->coordinator_ = TRY(start_coordinator(serving,
                                                {.listen = {.host = "127.0.0.1", .port = 0},
                                                 .insecure_network = false,
                                                 .token = token,
                                                 .pipeline_user = options.pipeline_user},
                                                display, stop));
  std::error_code ignored;
  const std::string folder =
      std::filesystem::absolute(serving.model_path, ignored).parent_path().string();
  const std::string binary = options.binary.empty() ? "/proc/self/exe" : options.binary;
  // Each would take the same processors.
  const std::string pin = options.pin == "auto" && options.workers > 1 ? "off" : options.pin;
  for (uint32_t i = 1; i <= options.workers; ++i) {
    std::vector<std::string> arguments = {"worker",
                                          "--join",
                                          cluster->coordinator_->address().text(),
                                          "--name",
                                          fmt::format("worker-{}", i),
                                          "--models",
                                          folder};
    if (options.threads > 0) {
      arguments.insert(arguments.end(), {"--threads", std::to_string(options.threads)});
    }
    arguments.insert(arguments.end(), {"--pin", pin});
    if (options.skip_probe) arguments.insert(arguments.end(), {"--speed", "10,200,50"});
    if (!options.isa.empty()) arguments.insert(arguments.end(), {"--isa", options.isa});
    cluster->workers_.push_back(
        TRY(ChildProcess::start(binary, arguments, {"STRATA_TOKEN=" + token})));
  }
  return cluster;
}

LocalCluster::~LocalCluster() {
  if (coordinator_) coordinator_->stop();
  for (const auto& worker : workers_) worker->signal(SIGTERM);
  for (const auto& worker : workers_) worker->stop(kStopGrace);
}

Status LocalCluster::wait_ready(const std::stop_token& stop) {
  const TimePoint deadline = SystemClock().now() + options_.timeout;
  while (!coordinator_->wait_ready(kReadyInterval)) {
    if (stop.stop_requested()) return cancelled("interrupted");
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i]->is_running()) continue;
      return unavailable(fmt::format("worker-{} ended with {}: {}", i + 1, workers_[i]->end_text(),
                                     workers_[i]->last_lines()));
    }
    if (SystemClock().now() >= deadline) {
      return deadline_exceeded("the local workers are not ready: " +
                               coordinator_->obstacle().to_string());
    }
  }
  return ok_status();
}

}  // namespace strata::serve
