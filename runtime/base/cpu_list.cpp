#include "runtime/base/cpu_list.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

namespace strata {
namespace {

constexpr int kCpuMax = 65535;

std::optional<int> take_number(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || number > kCpuMax) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.remove_suffix(1);
  std::vector<int> cpus;
  while (!text.empty()) {
    const std::optional<int> first = take_number(text);
    if (!first) return std::nullopt;
    std::optional<int> last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      last = take_number(text);
      if (!last || *last < *first) return std::nullopt;
    }
    for (int cpu = *first; cpu <= *last; ++cpu) cpus.push_back(cpu);
    if (text.empty()) break;
    if (!text.starts_with(',') || text.size() == 1) return std::nullopt;
    text.remove_prefix(1);
  }
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  return cpus;
}

std::string cpu_list_text(std::span<const int> cpus) {
  std::string text;
  for (size_t i = 0; i < cpus.size();) {
    size_t end = i + 1;
    while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text +=
        end - i == 1 ? fmt::format("{}", cpus[i]) : fmt::format("{}-{}", cpus[i], cpus[end - 1]);
    i = end;
  }
  return text;
}

std::vector<int> allowed_cpus(pid_t thread) {
  std::vector<int> cpus;
  // A mask that is too small for the kernel's is refused.
  for (int room = 1024; room <= kCpuMax + 1; room *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(room));
    if (set == nullptr) return {};
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
    CPU_ZERO_S(bytes, set);
    const bool ok = ::sched_getaffinity(thread, bytes, set) == 0;
    const bool too_small = !ok && errno == EINVAL;
    for (int cpu = 0; ok && cpu < room; ++cpu) {
      if (CPU_ISSET_S(static_cast<size_t>(cpu), bytes, set)) cpus.push_back(cpu);
    }
    CPU_FREE(set);
    if (!too_small) break;
  }
  return cpus;
}

bool allow_cpus(pid_t thread, std::span<const int> cpus) {
  const int room = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(room));
  if (set == nullptr) return false;
  const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(room));
  CPU_ZERO_S(bytes, set);
  for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes, set);
  const bool ok = ::sched_setaffinity(thread, bytes, set) == 0;
  CPU_FREE(set);
  return ok;
}

std::vector<int> cpus_of_process_if_pinned() {
  std::vector<int> cpus = allowed_cpus(::getpid());
  if (cpus == allowed_cpus(0)) cpus.clear();
  return cpus;
}

void run_where_process_may() {
  const std::vector<int> cpus = cpus_of_process_if_pinned();
  if (!cpus.empty()) allow_cpus(0, cpus);
}

}  // namespace strata
