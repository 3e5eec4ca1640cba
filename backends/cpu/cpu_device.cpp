#include "backends/cpu/cpu_device.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "backends/cpu/cpu_backend.h"
#include "backends/cpu/packed_buffer_type.h"
#include "backends/cpu/plan.h"
#include "runtime/base/cgroup.h"
#include "runtime/memory/host_buffer.h"

namespace strata::cpu {
namespace {

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(Isa isa)
      : isa_(isa), description_(fmt::format("{} ({})", processor_name(), isa_name(isa))) {}

  std::string_view name() const override { return "CPU"; }
  std::string_view description() const override { return description_; }
  DeviceKind kind() const override { return DeviceKind::cpu; }
  DeviceMemory memory() const override { return host_memory(); }

  const BufferType& compute_buffer_type() const override { return host_buffer_type(); }
  std::vector<const BufferType*> weight_buffer_types() const override {
    return {&packed_buffer_type(), &host_buffer_type()};
  }
  Result<std::unique_ptr<Buffer>> wrap_host(std::span<const std::byte> bytes,
                                            std::shared_ptr<const void> keep_alive) const override {
    return wrap_host_memory(bytes, std::move(keep_alive));
  }

  bool supports(const Tensor& node) const override { return can_run(node); }
  bool supports_buffer_type(const BufferType& type) const override {
    return type.is_host() || &type == &packed_buffer_type();
  }

  Result<std::unique_ptr<Backend>> create_backend(const BackendOptions& options) const override {
    const int threads = TRY(thread_count(options));
    return std::unique_ptr<Backend>(
        std::make_unique<CpuBackend>(*this, isa_, threads, options.cpus));
  }
  Result<uint64_t> workspace_bytes(std::span<const GraphView> parts,
                                   const BackendOptions& options) const override {
    const int threads = TRY(thread_count(options));
    if (parts.empty()) return uint64_t{0};
    WorkspaceSize size;
    for (const GraphView& part : parts) size.cover(*TRY(Plan::compile(part, threads)));
    return size.total(threads);
  }

 private:
  static Result<int> thread_count(const BackendOptions& options) {
    if (options.threads < 0) {
      return invalid_argument(fmt::format("{} threads for the CPU", options.threads),
                              "give a positive number, or 0 for one for each core");
    }
    return options.threads > 0 ? options.threads : usable_core_count();
  }

  Isa isa_;
  std::string description_;
};

// The number after "KEY:" in a file of /proc, in the unit that stands there; 0 if there is none.
uint64_t proc_field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t digits = line.find_first_of("0123456789", key.size());
    if (digits == std::string::npos) return 0;
    return std::strtoull(line.c_str() + digits, nullptr, 10);
  }
  return 0;
}

}  // namespace

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, 10, "model name") != 0) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "CPU";
}

DeviceMemory host_memory(const std::string& root) {
  DeviceMemory memory;
  memory.total_bytes = proc_field(root + "/proc/meminfo", "MemTotal:") * 1024;
  memory.free_bytes = proc_field(root + "/proc/meminfo", "MemAvailable:") * 1024;
  const CgroupLimits limits = read_cgroup_limits(root);
  memory.total_bytes = std::min(memory.total_bytes, limits.memory_bytes.value_or(UINT64_MAX));
  memory.free_bytes = std::min(memory.free_bytes, limits.memory_free_bytes.value_or(UINT64_MAX));
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < memory.total_bytes) {
    const uint64_t used = proc_field(root + "/proc/self/status", "VmSize:") * 1024;
    const uint64_t left = space.rlim_cur - std::min<uint64_t>(space.rlim_cur, used);
    memory.total_bytes = space.rlim_cur;
    memory.free_bytes = std::min(memory.free_bytes, left);
  }
  return memory;
}

Result<std::unique_ptr<Device>> make_cpu_device(const CpuOptions& options) {
  const Isa isa = TRY(choose_isa(options.isa));
  return std::unique_ptr<Device>(std::make_unique<CpuDevice>(isa));
}

}  // namespace strata::cpu
