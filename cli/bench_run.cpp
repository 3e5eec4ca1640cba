#include "cli/bench_run.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace strata::cli {
namespace {

using coordinator::Request;
using coordinator::RequestEvent;
using coordinator::RequestFinish;
using coordinator::RequestToken;

constexpr auto kCancelInterval = std::chrono::milliseconds(50);

struct Progress {
  Mutex mutex;
  CondVar changed;
  std::vector<std::vector<TimePoint>> tokens STRATA_GUARDED_BY(mutex);
  uint32_t finished STRATA_GUARDED_BY(mutex) = 0;
  Status failure STRATA_GUARDED_BY(mutex);
};

double ms_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// Ids that differ from one sequence to the next, and are the same in each run.
std::vector<int32_t> prompt_of(const BenchLoad& load, uint32_t sequence) {
  std::vector<int32_t> ids;
  uint32_t state = 12345 + sequence * 7919;
  for (uint32_t i = 0; i < load.prompt_tokens; ++i) {
    state = state * 1664525U + 1013904223U;
    ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(load.vocab_size)));
  }
  return ids;
}

BenchTimes summarise(const std::vector<std::vector<TimePoint>>& tokens, TimePoint begin) {
  BenchTimes times;
  TimePoint all_decode = begin;
  TimePoint end = begin;
  for (const auto& of_sequence : tokens) {
    if (of_sequence.empty()) continue;
    all_decode = std::max(all_decode, of_sequence.front());
    end = std::max(end, of_sequence.back());
    times.mean_first_ms +=
        ms_between(begin, of_sequence.front()) / static_cast<double>(tokens.size());
  }
  times.first_token_ms = ms_between(begin, all_decode);
  size_t decoded = 0;
  for (const auto& of_sequence : tokens) {
    decoded += static_cast<size_t>(
        std::count_if(of_sequence.begin(), of_sequence.end(),
                      [&](const TimePoint& time) { return time > all_decode; }));
  }
  const double ms = ms_between(all_decode, end);
  if (decoded > 0 && ms > 0) {
    times.decode_tokens_per_s = static_cast<double>(decoded) / ms * 1e3;
    times.ms_per_token = ms / static_cast<double>(decoded) * static_cast<double>(tokens.size());
  }
  return times;
}

}  // namespace

Result<BenchTimes> run_bench(coordinator::EngineLoop& engine, const BenchLoad& load,
                             const std::stop_token& stop) {
  const auto progress = std::make_shared<Progress>();
  const SystemClock clock;
  {
    const MutexLock lock(progress->mutex);
    progress->tokens.resize(load.sequences);
  }
  const TimePoint begin = clock.now();
  std::vector<coordinator::RequestId> ids;
  for (uint32_t i = 0; i < load.sequences; ++i) {
    Request request;
    request.prompt = prompt_of(load, i);
    request.max_new_tokens = load.new_tokens;
    request.sampling.temperature = 0;
    ids.push_back(engine.submit(std::move(request), [progress, i](const RequestEvent& event) {
      const TimePoint now = SystemClock().now();
      const MutexLock lock(progress->mutex);
      if (std::holds_alternative<RequestToken>(event)) progress->tokens[i].push_back(now);
      if (const auto* finish = std::get_if<RequestFinish>(&event)) {
        ++progress->finished;
        if (!finish->status.ok() && progress->failure.ok()) progress->failure = finish->status;
        progress->changed.notify_all();
      }
    }));
  }
  const MutexLock lock(progress->mutex);
  while (progress->finished < load.sequences) {
    progress->changed.wait_until(progress->mutex, clock.now() + kCancelInterval);
    if (!stop.stop_requested()) continue;
    for (const coordinator::RequestId id : ids) engine.cancel(id);
    return cancelled("interrupted");
  }
  if (!progress->failure.ok()) return progress->failure;
  return summarise(progress->tokens, begin);
}

Result<double> measure_hop_us(coordinator::EngineLoop& engine, uint32_t stages, int32_t vocab_size,
                              const std::stop_token& stop) {
  constexpr int kRuns = 3;
  const BenchLoad one{
      .prompt_tokens = 1, .new_tokens = 49, .sequences = 1, .vocab_size = vocab_size};
  std::vector<double> hops_us;
  for (int run = 0; run < kRuns; ++run) {
    const coordinator::EngineCounters before = engine.counters();
    const BenchTimes times = TRY(run_bench(engine, one, stop));
    const coordinator::EngineCounters after = engine.counters();
    const double steps = static_cast<double>(after.steps_done - before.steps_done);
    if (steps == 0) continue;
    const double busy_us = static_cast<double>(after.busy_ns - before.busy_ns) / 1e3 / steps;
    hops_us.push_back((times.ms_per_token * 1e3 - busy_us) / stages);
  }
  if (hops_us.empty()) return internal_error("no step was counted");
  std::sort(hops_us.begin(), hops_us.end());
  return hops_us[hops_us.size() / 2];
}

}  // namespace strata::cli
