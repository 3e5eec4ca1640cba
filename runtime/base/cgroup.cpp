#include "runtime/base/cgroup.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace strata {
namespace {

namespace fs = std::filesystem;

// A hierarchy as it is mounted.
struct CgroupMount {
  bool is_v2 = false;
  std::string group;   // that is mounted: "/" but for containers
  std::string folder;  // where
  std::string controllers;
};

bool lists(std::string_view comma_separated, std::string_view word) {
  while (!comma_separated.empty()) {
    const size_t end = std::min(comma_separated.find(','), comma_separated.size());
    if (comma_separated.substr(0, end) == word) return true;
    comma_separated.remove_prefix(std::min(end + 1, comma_separated.size()));
  }
  return false;
}

std::vector<CgroupMount> read_mounts(const std::string& root) {
  std::vector<CgroupMount> mounts;
  std::ifstream file(root + "/proc/self/mountinfo");
  std::string line;
  while (std::getline(file, line)) {
    // ID PARENT DEVICE GROUP FOLDER OPTIONS [TAGS...] - TYPE SOURCE CONTROLLERS
    std::istringstream words(line);
    std::string ignored;
    std::string type;
    CgroupMount mount;
    words >> ignored >> ignored >> ignored >> mount.group >> mount.folder;
    while (words >> ignored && ignored != "-") {
    }
    words >> type >> ignored >> mount.controllers;
    mount.is_v2 = type == "cgroup2";
    if (mount.is_v2 || type == "cgroup") mounts.push_back(std::move(mount));
  }
  return mounts;
}

// This process's group of a controller in version 1, or in version 2 if `controller` is empty.
std::optional<std::string> own_group(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    // NUMBER:CONTROLLERS:GROUP
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : lists(names, controller)) {
      return line.substr(second + 1);
    }
  }
  return std::nullopt;
}

// The group's path below what is mounted; "/" for one that lies outside, as a container's may.
fs::path below_mount(const std::string& group, const std::string& mounted) {
  if (group.find("/..") != std::string::npos) return "/";
  if (mounted == "/") return group;
  if (group == mounted || !group.starts_with(mounted + "/")) return "/";
  return group.substr(mounted.size());
}

// The folders of this process's group and of those around it, the innermost first.
std::vector<std::string> group_folders(const std::string& root, const CgroupMount& mount,
                                       std::string_view controller) {
  const std::optional<std::string> group =
      own_group(root, mount.is_v2 ? std::string_view() : controller);
  if (!group || !group->starts_with('/')) return {};
  std::vector<std::string> folders;
  fs::path path = below_mount(*group, mount.group);
  while (path.has_relative_path()) {
    folders.push_back(mount.folder + path.string());
    path = path.parent_path();
  }
  folders.push_back(mount.folder);
  return folders;
}

// The number that a file begins with; none for "max", for a negative one and without the file.
std::optional<uint64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t value = -1;
  if (!(file >> value) || value < 0) return std::nullopt;
  return static_cast<uint64_t>(value);
}

std::optional<uint64_t> field_in(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  while (file >> word >> value) {
    if (word == key) return value;
  }
  return std::nullopt;
}

template <typename T>
void lower(std::optional<T>& least, std::optional<T> value) {
  if (value && (!least || *value < *least)) least = value;
}

void read_cores(const std::string& folder, bool is_v2, CgroupLimits& limits) {
  std::optional<uint64_t> quota;
  std::optional<uint64_t> period;
  if (is_v2) {
    std::ifstream file(folder + "/cpu.max");
    uint64_t first = 0;
    uint64_t second = 0;
    if (file >> first >> second) {
      quota = first;
      period = second;
    }
  } else {
    quota = number_in(folder + "/cpu.cfs_quota_us");
    period = number_in(folder + "/cpu.cfs_period_us");
  }
  if (!quota || !period || *quota == 0 || *period == 0) return;
  lower(limits.cores, std::optional(static_cast<double>(*quota) / static_cast<double>(*period)));
}

void read_memory(const std::string& root, const std::string& folder, bool is_v2,
                 CgroupLimits& limits) {
  const std::string path = root + folder;
  std::optional<uint64_t> limit;
  if (is_v2) {
    limit = number_in(path + "/memory.max");
    lower(limit, number_in(path + "/memory.high"));
  } else {
    limit = number_in(path + "/memory.limit_in_bytes");
  }
  if (!limit) return;
  const uint64_t used =
      number_in(path + (is_v2 ? "/memory.current" : "/memory.usage_in_bytes")).value_or(0);
  const uint64_t cached =
      field_in(path + "/memory.stat", is_v2 ? "inactive_file" : "total_inactive_file").value_or(0);
  const uint64_t needed = used - std::min(used, cached);
  lower(limits.memory_free_bytes, std::optional(*limit - std::min(*limit, needed)));
  if (limits.memory_bytes && *limits.memory_bytes <= *limit) return;
  limits.memory_bytes = limit;
  limits.memory_group = folder;
}

}  // namespace

CgroupLimits read_cgroup_limits(const std::string& root) {
  CgroupLimits limits;
  for (const CgroupMount& mount : read_mounts(root)) {
    if (mount.is_v2 || lists(mount.controllers, "cpu")) {
      for (const std::string& folder : group_folders(root, mount, "cpu")) {
        read_cores(root + folder, mount.is_v2, limits);
      }
    }
    if (mount.is_v2 || lists(mount.controllers, "memory")) {
      for (const std::string& folder : group_folders(root, mount, "memory")) {
        read_memory(root, folder, mount.is_v2, limits);
      }
    }
  }
  return limits;
}

}  // namespace strata
