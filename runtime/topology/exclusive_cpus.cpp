#include "runtime/topology/exclusive_cpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <system_error>
#include <vector>

#include "runtime/base/cpu_list.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// The host's own namespace of processes has this number on every Linux (PROC_PID_INIT_INO).
constexpr std::string_view kHostPids = "pid:[4026531836]";

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Empty for a file that is not there or holds no list.
std::vector<int> cpus_in(const std::string& path) {
  return parse_cpu_list(first_line(path)).value_or(std::vector<int>());
}

bool contains_all(std::span<const int> all, std::span<const int> some) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

bool overlap(std::span<const int> a, std::span<const int> b) {
  return std::any_of(a.begin(), a.end(),
                     [&](int cpu) { return std::binary_search(b.begin(), b.end(), cpu); });
}

// The group of this process in cgroup version 2, as "/a/b"; "/" for the root that it sees.
std::string cgroup_path(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::/")) return line.substr(3);
  }
  return "/";
}

// The nearest group, this process's own or one around it, that is a partition; empty for none.
std::string partition_of(const std::string& root) {
  for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}) {
    for (fs::path group = cgroup_path(root);; group = group.parent_path()) {
      // An invalid partition is "root invalid (why)". The host's root has no such file.
      const std::string kind =
          first_line(root + mount + (group / "cpuset.cpus.partition").string());
      if (kind == "root" || kind == "isolated") return group.string();
      if (!group.has_relative_path()) break;
    }
  }
  return "";
}

struct ProcessStatus {
  std::string name;
  pid_t parent = 0;
  std::vector<int> cpus;
  bool is_kernel_thread = true;  // it has no memory of its own; nor have processes that ended
};

std::optional<ProcessStatus> read_status(const fs::path& folder) {
  std::ifstream file(folder / "status");
  if (!file) return std::nullopt;
  ProcessStatus status;
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(":\t");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    const std::string_view key = std::string_view(line).substr(0, colon);
    if (key == "Name") status.name = value;
    if (key == "PPid") std::from_chars(value.data(), value.data() + value.size(), status.parent);
    if (key == "VmSize") status.is_kernel_thread = false;
    if (key == "Cpus_allowed_list") {
      status.cpus = parse_cpu_list(value).value_or(std::vector<int>());
    }
  }
  return status;
}

struct ProcessTable {
  std::map<pid_t, ProcessStatus> processes;
  bool is_whole = true;  // none is hidden from this user
};

ProcessTable read_processes(const std::string& root) {
  ProcessTable table;
  std::error_code error;
  for (fs::directory_iterator entry(root + "/proc", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    pid_t pid = 0;
    const auto [rest, bad] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (bad != std::errc() || rest != name.data() + name.size()) continue;
    if (std::optional<ProcessStatus> status = read_status(entry->path())) {
      table.processes.emplace(pid, std::move(*status));
    } else if (fs::exists(entry->path(), error)) {
      table.is_whole = false;
    }
  }
  // Where others' processes are hidden, the first one is.
  if (error || !table.processes.contains(1)) table.is_whole = false;
  return table;
}

// Empty if nobody else may run on these processors.
std::string other_user(const ProcessTable& table, std::span<const int> cpus, pid_t self) {
  std::vector<pid_t> own;
  for (pid_t pid = self; pid > 0 && std::find(own.begin(), own.end(), pid) == own.end();) {
    own.push_back(pid);
    const auto found = table.processes.find(pid);
    pid = found == table.processes.end() ? 0 : found->second.parent;
  }
  for (const auto& [pid, status] : table.processes) {
    if (status.is_kernel_thread || std::find(own.begin(), own.end(), pid) != own.end()) continue;
    if (overlap(status.cpus, cpus)) return fmt::format("process {} ({})", pid, status.name);
  }
  return "";
}

}  // namespace

CpuClaim judge_cpus(std::span<const int> cpus, const std::string& root, pid_t self) {
  const std::vector<int> online = cpus_in(root + "/sys/devices/system/cpu/online");
  if (cpus.empty() || online.empty()) return {false, "the system does not tell its processors"};
  if (contains_all(cpus, online)) {
    return {false, "all processors of this machine are in use, as by everything else on it"};
  }
  const std::vector<int> isolated = cpus_in(root + "/sys/devices/system/cpu/isolated");
  const bool is_isolated = contains_all(isolated, cpus);
  const std::string partition = partition_of(root);
  const ProcessTable table = read_processes(root);
  std::error_code error;
  const bool sees_host =
      table.is_whole && fs::read_symlink(root + "/proc/self/ns/pid", error).string() == kHostPids;
  const std::string other = other_user(table, cpus, self);
  if (!other.empty()) return {false, fmt::format("{} may run on the same processors", other)};
  if (is_isolated) return {true, "these processors are isolated from the scheduler"};
  if (!partition.empty()) return {true, fmt::format("the cpuset of {} is a partition", partition)};
  if (sees_host) return {true, "no other process of the host may run on these processors"};
  return {false,
          "other processes of the host cannot be seen from here, and no cpuset partition keeps "
          "them off these processors"};
}

}  // namespace strata
