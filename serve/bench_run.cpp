#include "serve/bench_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/mutex.h"

namespace strata::serve {
namespace {

using coordinator::Request;
using coordinator::RequestEvent;
using coordinator::RequestFinish;
using coordinator::RequestProgress;
using coordinator::RequestToken;

constexpr auto kCancelInterval = std::chrono::milliseconds(50);

// When a sequence's prompt was computed up to its depth, and when its tokens came.
struct SequenceTimes {
  std::optional<TimePoint> counted_begin;  // with a depth: when the step that ends there was done
  std::vector<TimePoint> tokens;
};

struct Progress {
  Mutex mutex;
  CondVar changed;
  std::vector<SequenceTimes> sequences STRATA_GUARDED_BY(mutex);
  uint32_t finished STRATA_GUARDED_BY(mutex) = 0;
  Status failure STRATA_GUARDED_BY(mutex);
};

double seconds_between(TimePoint begin, TimePoint end) {
  return std::chrono::duration<double>(end - begin).count();
}

// Ids that differ from one sequence to the next, and are the same in each run.
std::vector<int32_t> prompt_of(const BenchLoad& load, uint32_t sequence) {
  std::vector<int32_t> ids;
  uint32_t state = 12345 + sequence * 7919;
  for (uint32_t i = 0; i < load.depth + load.prompt_tokens; ++i) {
    state = state * 1664525U + 1013904223U;
    ids.push_back(static_cast<int32_t>((state >> 8) % static_cast<uint32_t>(load.vocab_size)));
  }
  return ids;
}

std::optional<double> prefill_rate(const std::vector<SequenceTimes>& sequences,
                                   const BenchLoad& load, TimePoint begin, TimePoint all_decode) {
  if (load.depth == 0) {
    return load.prompt_tokens * load.sequences / seconds_between(begin, all_decode);
  }
  const SequenceTimes& only = sequences.front();
  if (sequences.size() > 1 || !only.counted_begin) return std::nullopt;
  return load.prompt_tokens / seconds_between(*only.counted_begin, all_decode);
}

// The sum of the sequences' own rates from `begin` to `end`, each from its first token in that time
// to its last: tokens of one step come one after the other, so that counting them all would lose
// some at both ends.
std::optional<double> decode_rate(const std::vector<SequenceTimes>& sequences, TimePoint begin,
                                  TimePoint end) {
  double rate = 0;
  for (const SequenceTimes& sequence : sequences) {
    const auto first = std::lower_bound(sequence.tokens.begin(), sequence.tokens.end(), begin);
    const auto last = std::upper_bound(first, sequence.tokens.end(), end);
    if (last - first < 2) return std::nullopt;
    rate += static_cast<double>(last - first - 1) / seconds_between(*first, *(last - 1));
  }
  return rate;
}

Result<BenchTimes> summarise(const std::vector<SequenceTimes>& sequences, const BenchLoad& load,
                             TimePoint begin) {
  BenchTimes times;
  double first_s = 0;
  TimePoint all_decode = begin;
  TimePoint end = TimePoint::max();
  for (const SequenceTimes& sequence : sequences) {
    if (sequence.tokens.empty()) return internal_error("a sequence ended without a token");
    all_decode = std::max(all_decode, sequence.tokens.front());
    end = std::min(end, sequence.tokens.back());
    first_s += seconds_between(sequence.counted_begin.value_or(begin), sequence.tokens.front());
  }
  const bool counts = load.depth == 0 || (sequences.size() == 1 && sequences[0].counted_begin);
  if (counts) times.mean_first_ms = first_s * 1e3 / static_cast<double>(sequences.size());
  times.prefill_tokens_per_s = prefill_rate(sequences, load, begin, all_decode);
  times.decode_tokens_per_s = decode_rate(sequences, all_decode, end);
  return times;
}

// Notes what an event says of sequence `i`.
void note(Progress& progress, uint32_t i, const BenchLoad& load, const RequestEvent& event) {
  const TimePoint now = SystemClock().now();
  const MutexLock lock(progress.mutex);
  SequenceTimes& sequence = progress.sequences[i];
  if (std::holds_alternative<RequestToken>(event)) sequence.tokens.push_back(now);
  if (const auto* prompt = std::get_if<RequestProgress>(&event)) {
    if (prompt->computed == load.depth) sequence.counted_begin = now;
  }
  if (const auto* finish = std::get_if<RequestFinish>(&event)) {
    ++progress.finished;
    if (!finish->status.ok() && progress.failure.ok()) progress.failure = finish->status;
    progress.changed.notify_all();
  }
}

}  // namespace

Result<BenchTimes> run_bench(coordinator::EngineLoop& engine, const BenchLoad& load,
                             const std::stop_token& stop) {
  const auto progress = std::make_shared<Progress>();
  const SystemClock clock;
  {
    const MutexLock lock(progress->mutex);
    progress->sequences.resize(load.sequences);
  }
  const TimePoint begin = clock.now();
  std::vector<coordinator::RequestId> ids;
  for (uint32_t i = 0; i < load.sequences; ++i) {
    Request request;
    request.prompt = prompt_of(load, i);
    request.max_new_tokens = load.new_tokens;
    request.sampling.temperature = 0;
    request.want_progress = load.depth > 0;
    request.step_border = load.depth;
    ids.push_back(engine.submit(std::move(request), [progress, i, load](const RequestEvent& event) {
      note(*progress, i, load, event);
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
  return summarise(progress->sequences, load, begin);
}

Result<double> measure_hop_us(coordinator::EngineLoop& engine, uint32_t stages, int32_t vocab_size,
                              const std::stop_token& stop) {
  constexpr int kRuns = 3;
  const BenchLoad one{
      .prompt_tokens = 1, .new_tokens = kHopContext - 1, .sequences = 1, .vocab_size = vocab_size};
  std::vector<double> hops_us;
  for (int run = 0; run < kRuns; ++run) {
    const coordinator::EngineCounters before = engine.counters();
    const BenchTimes times = TRY(run_bench(engine, one, stop));
    const coordinator::EngineCounters after = engine.counters();
    const double steps = static_cast<double>(after.steps_done - before.steps_done);
    if (steps == 0 || !times.decode_tokens_per_s) continue;
    const double busy_us = static_cast<double>(after.busy_ns - before.busy_ns) / 1e3 / steps;
    hops_us.push_back((1e6 / *times.decode_tokens_per_s - busy_us) / stages);
  }
  if (hops_us.empty()) return internal_error("no step was counted");
  std::sort(hops_us.begin(), hops_us.end());
  return hops_us[hops_us.size() / 2];
}

}  // namespace strata::serve
