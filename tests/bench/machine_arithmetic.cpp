#include "tests/bench/machine_arithmetic.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "backends/cpu/isa.h"
#include "tests/bench/arithmetic_steps.h"
#include "tests/bench/processor_ports.h"

namespace strata::bench {
namespace {

// A run is so short that many fit between two moments in which something else has the core.
constexpr int64_t kRoundsOfRun = 30'000;  // of all chains: 0.1 to 0.2 ms
constexpr int64_t kAddsOfRun = 100'000;   // some 0.03 ms
constexpr double kSecondsOfIteration = 0.02;
// On a busy machine the time may pass in one interrupted run: then it takes longer.
constexpr int kRunsOfIteration = 20;
// What measuring may add, with clocks that move.
constexpr double kTolerance = 0.03;

double clock_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds that wait for each other: one in each cycle, on every x86 processor. Between registers,
// since some processors add a constant without a cycle. Returns GHz.
double clock_ghz() {
  constexpr int64_t kAddsTogether = 100;
  uint64_t sum = 0;
  const uint64_t step = 3;
  const double begin = clock_s();
  for (int64_t i = 0; i < kAddsOfRun / kAddsTogether; ++i) {
    asm volatile(".rept 100\n\tadd %1, %0\n\t.endr" : "+r"(sum) : "r"(step));
  }
  return static_cast<double>(kAddsOfRun) / (clock_s() - begin) / 1e9;
}

// Threads meet without sleeping, so that they begin within a microsecond of each other.
class Meeting {
 public:
  explicit Meeting(int64_t threads) : threads_(threads) {}
  void wait() {
    const int64_t round = round_.load();
    if (arrived_.fetch_add(1) + 1 == threads_) {
      arrived_ = 0;
      round_.fetch_add(1);
      return;
    }
    for (int spins = 0; round_.load() == round; ++spins) {
      if (spins % 1024 == 1023) std::this_thread::yield();
      _mm_pause();
    }
  }

 private:
  const int64_t threads_;
  std::atomic<int64_t> arrived_ = 0;
  std::atomic<int64_t> round_ = 0;
};

struct Work {
  void (*run)(int64_t rounds) = nullptr;
  double ops_of_run = 0;
  double ops_of_step = 0;
  double steps_per_cycle = 0;  // 0: not known here
  const char* family = "";
};

template <typename Step>
Work work_of(void (*run)(int64_t), double steps_per_cycle, const char* family) {
  constexpr int64_t kOpsOfRun = kRoundsOfRun * Step::kChains * Step::kOps;
  return {run, static_cast<double>(kOpsOfRun), static_cast<double>(Step::kOps), steps_per_cycle,
          family};
}

// The best of what the runs on some cores gave, all of them at once.
struct Best {
  double gops = 0;          // all cores together
  std::vector<double> ghz;  // of each core
};

// Runs of the work on all cores at once, each after a look at its clock, for a while.
void run_on_cores(const Work& work, Best& best) {
  struct Span {
    double begin = 0;
    double end = 0;
  };
  const auto cores = static_cast<int64_t>(best.ghz.size());
  std::vector<Span> spans(best.ghz.size());
  std::atomic<bool> is_over = false;
  int runs = 0;  // core 0's
  Meeting meeting(cores);
  const double end = clock_s() + kSecondsOfIteration;
  const auto run_core = [&](size_t core) {
    while (true) {
      best.ghz[core] = std::max(best.ghz[core], clock_ghz());
      meeting.wait();
      if (is_over) return;
      spans[core].begin = clock_s();
      work.run(kRoundsOfRun);
      spans[core].end = clock_s();
      meeting.wait();
      if (core > 0) continue;
      Span all = spans[0];
      for (const Span& span : spans) {
        all = {std::min(all.begin, span.begin), std::max(all.end, span.end)};
      }
      best.gops = std::max(
          best.gops, work.ops_of_run * static_cast<double>(cores) / (all.end - all.begin) / 1e9);
      is_over = ++runs >= kRunsOfIteration && all.end >= end;
    }
  };
  std::vector<std::jthread> others;
  for (size_t core = 1; core < best.ghz.size(); ++core) others.emplace_back(run_core, core);
  run_core(0);
}

double bound_of(const Work& work, const Best& best) {
  double ghz_sum = 0;
  for (const double ghz : best.ghz) ghz_sum += ghz;
  return ghz_sum * work.steps_per_cycle * work.ops_of_step;
}

// Whether the rate is more than clock and ports allow. Before it says so it looks at the clock some
// more times: each look may have been interrupted.
bool exceeds_bound(const Work& work, Best& best) {
  constexpr int kMoreLooks = 2000;
  const auto exceeds = [&] { return best.gops > bound_of(work, best) * (1 + kTolerance); };
  for (int i = 0; i < kMoreLooks && exceeds(); ++i) {
    const double now_ghz = clock_ghz();
    for (double& ghz : best.ghz) ghz = std::max(ghz, now_ghz);
  }
  return exceeds();
}

void time_arithmetic(benchmark::State& state, const Work& work,
                     std::vector<std::string>& failures) {
  Best best;
  best.ghz.resize(static_cast<size_t>(state.range(0)));
  for (auto _ : state) run_on_cores(work, best);
  const bool is_known = work.steps_per_cycle > 0;
  const bool exceeds = is_known && exceeds_bound(work, best);
  double ghz = 0;
  for (const double each : best.ghz) ghz += each / static_cast<double>(best.ghz.size());
  state.counters["GOPS"] = best.gops;
  state.counters["GHz"] = ghz;
  if (!is_known) {
    state.SetLabel("ports not known");
    return;
  }
  const double bound = bound_of(work, best);
  state.counters["of_bound"] = best.gops / bound;
  state.SetLabel(fmt::format("{}: {:.3g} steps a cycle", work.family, work.steps_per_cycle));
  if (!exceeds) return;
  failures.push_back(
      fmt::format("{:.0f} GOPS are more than the {:.0f} that {:.2f} GHz and {:.3g} steps a cycle "
                  "({}) allow: the "
                  "compiler joined chains, or the ports are others (--steps-per-cycle)",
                  best.gops, bound, ghz, work.steps_per_cycle, work.family));
  state.SkipWithError(failures.back().c_str());
}

}  // namespace

void register_arithmetic(const ArithmeticOptions& options,
                         const std::shared_ptr<std::vector<std::string>>& failures) {
  using cpu::IsaLevel;
  const Ports ports = ports_of(this_processor());
  const auto add = [&](const std::string& name, const Work& work) {
    auto* benchmark = benchmark::RegisterBenchmark(
        name.c_str(),
        [work, failures](benchmark::State& state) { time_arithmetic(state, work, *failures); });
    benchmark->ArgName("cores")->UseRealTime()->Unit(benchmark::kMillisecond);
    for (const int64_t count : options.cores) benchmark->Arg(count);
  };
  const auto work = [&]<typename Step>(Step, void (*run)(int64_t), double steps_per_cycle) {
    if (options.steps_per_cycle == 0) return work_of<Step>(run, steps_per_cycle, ports.family);
    return work_of<Step>(run, options.steps_per_cycle, "as asked for");
  };
  for (const cpu::Isa isa : cpu::available_isas()) {
    const std::string path = cpu::isa_name(isa);
    if (isa.level == IsaLevel::avx512 && isa.vnni) {
      add("int8/" + path, work(Int8Avx512Vnni{}, run_avx512<Int8Avx512Vnni>, ports.dot_512));
    } else if (isa.level == IsaLevel::avx512) {
      add("int8/" + path, work(Int8Avx512{}, run_avx512<Int8Avx512>, ports.madd_512));
      add("f32/" + path, work(F32Avx512{}, run_avx512<F32Avx512>, ports.f32_512));
    } else if (isa.level == IsaLevel::avx2 && isa.vnni) {
      add("int8/" + path, work(Int8Avx2Vnni{}, run_avx2<Int8Avx2Vnni>, ports.dot_256));
    } else if (isa.level == IsaLevel::avx2) {
      add("int8/" + path, work(Int8Avx2{}, run_avx2<Int8Avx2>, ports.madd_256));
      add("f32/" + path, work(F32Avx2{}, run_avx2<F32Avx2>, ports.f32_256));
    }
  }
}

}  // namespace strata::bench
