#include "runtime/sched/scheduler.h"

#include <fmt/format.h>

#include "runtime/sched/local_scheduler.h"

namespace strata {

Result<std::unique_ptr<Scheduler>> Scheduler::create(std::vector<std::unique_ptr<Backend>> backends,
                                                     const SchedulerOptions& options) {
  if (backends.empty()) return invalid_argument("a scheduler needs at least one backend");
  if (options.n_copies < 1 || options.n_copies > kMaxCopies) {
    return invalid_argument(fmt::format("{} copies for pipelining: 1 to {} are possible",
                                        options.n_copies, kMaxCopies));
  }
  return std::unique_ptr<Scheduler>(new LocalScheduler(std::move(backends), options));
}

}  // namespace strata
