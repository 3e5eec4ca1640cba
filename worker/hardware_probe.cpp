#include "worker/hardware_probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>

#include "backends/cpu/cpu_probe.h"
#include "backends/cpu/isa.h"
#include "runtime/base/clock.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace strata::worker {
namespace {

constexpr std::chrono::seconds kTurnTimeout{30};
constexpr std::chrono::milliseconds kTurnRetry{20};

// Holds the host's probe lock while it lives, if it could be had.
class ProbeTurn {
 public:
  explicit ProbeTurn(const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string path = folder + "/probe.lock";
    file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!file_.is_open()) {
      log::warn("cannot open {}: the speed is measured without taking turns", path);
      return;
    }
    const SystemClock clock;
    const TimePoint deadline = clock.now() + kTurnTimeout;
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (clock.now() >= deadline) {
        log::warn("another worker of this host has measured for {} s: not waiting any longer",
                  kTurnTimeout.count());
        return;
      }
      std::this_thread::sleep_for(kTurnRetry);
    }
  }
  ProbeTurn(const ProbeTurn&) = delete;
  ProbeTurn& operator=(const ProbeTurn&) = delete;

 private:
  FileDescriptor file_;
};

}  // namespace

Result<DeviceSpeed> parse_speed(const std::string& text) {
  std::array<double, 3> values = {};
  const char* at = text.c_str();
  for (size_t i = 0; i < values.size(); ++i) {
    char* end = nullptr;
    values[i] = std::strtod(at, &end);
    const bool last = i + 1 == values.size();
    if (end == at || *end != (last ? '\0' : ',') || !std::isfinite(values[i]) || values[i] <= 0) {
      return invalid_argument(fmt::format("speed '{}' is not three positive numbers", text),
                              "write READ_GB_S,INT8_GOPS,F32_GFLOPS, such as 20,400,100");
    }
    at = end + 1;
  }
  return DeviceSpeed{values[0] * 1e9, values[1] * 1e9, values[2] * 1e9};
}

Result<std::vector<remote::DeviceReport>> probe_devices(const DeviceRegistry& registry,
                                                        const ProbeRequest& request) {
  std::vector<remote::DeviceReport> reports;
  for (const Device* device : registry.devices()) {
    remote::DeviceReport report;
    report.name = device->name();
    report.description = device->description();
    report.kind = device->kind();
    report.memory = device->memory();
    if (request.speed) {
      report.speed = *request.speed;
    } else if (device->kind() == DeviceKind::cpu) {
      const ProbeTurn turn(request.lock_folder);
      cpu::ProbeOptions options;
      options.isa = TRY(cpu::choose_isa(""));
      options.threads = request.threads;
      report.speed = TRY(cpu::probe_speed(options));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

std::string host_id() {
  std::ifstream boot_file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  if (!std::getline(boot_file, boot)) return "";
  std::ifstream machine_file("/etc/machine-id");
  std::string machine;
  std::getline(machine_file, machine);
  struct stat limits {};
  if (::stat("/sys/fs/cgroup", &limits) != 0) limits = {};
  const std::string text =
      fmt::format("strata host {} {} {} {}", boot, machine, limits.st_dev, limits.st_ino);
  return sha256_hex(std::as_bytes(std::span(text))).substr(0, 32);
}

}  // namespace strata::worker
