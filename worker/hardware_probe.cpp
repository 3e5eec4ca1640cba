#include "worker/hardware_probe.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "backends/cpu/cpu_device.h"
#include "backends/cpu/cpu_probe.h"
#include "backends/cpu/isa.h"
#include "runtime/base/cgroup.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/file_descriptor.h"
#include "runtime/base/log.h"

namespace strata::worker {
namespace {

constexpr std::chrono::seconds kTurnTimeout{30};
constexpr std::chrono::milliseconds kTurnRetry{20};

// The right to measure while it lives. It is a name in the abstract socket namespace, which the
// kernel gives to one process of the host at a time and takes back when that ends in whatever way.
class ProbeTurn {
 public:
  ProbeTurn() = default;
  ProbeTurn(const ProbeTurn&) = delete;
  ProbeTurn& operator=(const ProbeTurn&) = delete;

  // Waits for the turn. Errors: CANCELLED by `stop`; who cannot take turns measures without.
  Status take(const std::string& name, const std::stop_token& stop) {
    socket_ = FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    // After a first byte of 0.
    const size_t length = std::min(name.size(), sizeof(at.sun_path) - 1);
    std::memcpy(at.sun_path + 1, name.data(), length);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
    const SystemClock clock;
    const TimePoint deadline = clock.now() + kTurnTimeout;
    while (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), size) != 0) {
      if (errno != EADDRINUSE) {
        log::warn("the speed is measured without taking turns: {}", std::strerror(errno));
        return ok_status();
      }
      if (stop.stop_requested()) return cancelled("asked to end before the speed was measured");
      if (clock.now() >= deadline) {
        log::warn("another worker of this host has measured for {} s: not waiting any longer",
                  kTurnTimeout.count());
        return ok_status();
      }
      std::this_thread::sleep_for(kTurnRetry);
    }
    return ok_status();
  }

 private:
  FileDescriptor socket_;
};

// Of the memory that the worker may use, half.
uint64_t read_bytes_within(uint64_t memory_bytes) {
  return std::min(cpu::ProbeOptions{}.read_bytes, memory_bytes / 2);
}

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
      ProbeTurn turn;
      TRY(turn.take(request.turn_name, request.stop));
      cpu::ProbeOptions options;
      options.isa = TRY(cpu::choose_isa(request.isa));
      options.threads = request.threads;
      options.cpus = request.cpus;
      options.stop = request.stop;
      options.core_quota = read_cgroup_limits().cores;
      options.read_bytes = read_bytes_within(
          request.memory_limit_bytes > 0 ? request.memory_limit_bytes : report.memory.free_bytes);
      if (options.core_quota.value_or(options.threads) < options.threads) {
        log::warn(
            "the control group allows {:.2f} processors at once, for {} thread{}: the speed "
            "is what that sustains",
            *options.core_quota, options.threads, options.threads == 1 ? "" : "s");
      }
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
  std::string text =
      fmt::format("strata host {} {} {} {}", boot, machine, limits.st_dev, limits.st_ino);
  // A control group whose limit counts is memory of its own.
  const CgroupLimits groups = read_cgroup_limits();
  if (groups.memory_bytes && *groups.memory_bytes <= cpu::host_memory().total_bytes) {
    text += " " + groups.memory_group;
  }
  return sha256_hex(text).substr(0, 32);
}

}  // namespace strata::worker
