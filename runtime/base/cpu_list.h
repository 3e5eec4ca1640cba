// Processors (hardware threads) by the operating system's numbers, and where threads may run.
//
// Lists are ascending and without doubles unless said otherwise. Text is the kernel's: "0-3,8".
// Threads: any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

// Spaces at the end are ignored; empty text is an empty list. None for anything else, and for
// numbers beyond 65535.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);
// Any order, which is kept: neighbours that follow one another become a range.
std::string cpu_list_text(std::span<const int> cpus);

// Where a thread of this machine may run, by its id; 0 is the calling thread, a process's id its
// first thread. Empty if the kernel does not say.
std::vector<int> allowed_cpus(pid_t thread);
// False if the kernel refuses. Requires: `cpus` is not empty.
bool allow_cpus(pid_t thread, std::span<const int> cpus);
// Where the process's first thread may run, if that differs from where the calling one may, which
// was pinned then. Else empty.
std::vector<int> cpus_of_process_if_pinned();
// Lets the calling thread run where the process's first one may, wherever its maker was pinned.
void run_where_process_may();

}  // namespace strata
