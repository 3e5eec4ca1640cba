// The machine's limits, against which kernels are judged: how fast memory is read, how many int8
// and F32 operations the cores do, and what meeting in the thread pool costs.
//
//   machine_bench [--sizes=MB[,MB...]] [--cores=N[,N...]] [--steps-per-cycle=X]
//                 [Google Benchmark's options]
//
//   read/MB:98/cores:2      one pass after the other over a buffer of 98 MB (decimal) with 2 MiB
//                           pages, as weights have, each core its part: the ceiling of decoding.
//                           Of several ways to read, which a quick trial compares, the best one:
//                           "ahead_KiB" and "streams" say which
//   int8/PATH/cores:1       independent chains of the path's dot instruction; a multiply and an add
//                           are two operations: the ceiling of prefill. The best of many runs of
//                           less than a millisecond. "GHz" is the clock beside it, by adds that
//                           wait for each other; "of_bound" the part of clock times ports, where
//                           the processor's ports are known, or X of these steps are what it
//                           begins in a cycle. More than that is an error
//   f32/PATH/cores:1        the same with fused multiply-adds
//   pool_job/threads:2      ThreadPool::run() of a job without work, again and again; "helped" is
//                           the part of its pieces that helpers ran
//   pool_meeting            the same with two pieces of 1 us, one for each thread; "over_ns" is
//                           what a job takes beyond the 1 us: what a step of a graph pays
//   pool_wake_up/threads:2  from run() to the first piece on a helper that was parked
//
// Try --benchmark_filter=read --sizes=16,98,250,1500 --cores=1,2,4.
#include <benchmark/benchmark.h>
#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/cpu/isa.h"
#include "runtime/base/check.h"
#include "runtime/base/thread_pool.h"
#include "tests/bench/machine_arithmetic.h"

namespace strata {
namespace {

using cpu::Isa;
using cpu::IsaLevel;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds that `work(core)` takes on all cores at once, the slowest counting.
double time_on_cores(int64_t cores, const std::function<void(int64_t)>& work) {
  std::vector<std::jthread> others;
  const double begin = seconds_now();
  for (int64_t core = 1; core < cores; ++core) others.emplace_back([&work, core] { work(core); });
  work(0);
  others.clear();
  return seconds_now() - begin;
}

benchmark::Counter rate_of(double each, const benchmark::State& state) {
  return {each * static_cast<double>(state.iterations()) / 1e9, benchmark::Counter::kIsRate};
}

// --- Reading -------------------------------------------------------------------------------------

constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Memory on 2 MiB pages where the system has them.
class HugeBuffer {
 public:
  explicit HugeBuffer(uint64_t size_bytes) : mapped_bytes_(size_bytes + kHugePage) {
    mapped_ =
        ::mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    STRATA_CHECK(mapped_ != MAP_FAILED, "no memory for the buffer");
    const auto address = reinterpret_cast<uintptr_t>(mapped_);
    data_ = reinterpret_cast<std::byte*>((address + kHugePage - 1) / kHugePage * kHugePage);
    ::madvise(data_, size_bytes, MADV_HUGEPAGE);
    std::memset(data_, 1, size_bytes);
  }
  ~HugeBuffer() { ::munmap(mapped_, mapped_bytes_); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  const std::byte* data() const { return data_; }

 private:
  uint64_t mapped_bytes_;
  void* mapped_ = nullptr;
  std::byte* data_ = nullptr;
};

// How a core walks through its part. What is fastest differs between processors, sizes and cores:
// their own prefetching stops at each 4 KiB page, so that lines are fetched ahead, as in the matrix
// kernels; several streams, each in a piece of its own, keep more pages open.
struct ReadWay {
  uint64_t ahead_bytes = 0;  // 0: nothing is fetched ahead
  uint64_t streams = 1;
};
constexpr uint64_t kStep = 256;  // bytes of a stream that are read at a time
constexpr uint64_t kMaxStreams = 4;
constexpr uint64_t kGrain = kStep * kMaxStreams;  // parts are multiples of it
constexpr uint64_t kAheadKiB[] = {0, 1, 2, 4, 6, 8};
constexpr uint64_t kStreams[] = {1, 2, kMaxStreams};

__attribute__((target("avx512f"))) void read_lines_avx512(const std::byte* p, uint64_t bytes,
                                                          ReadWay way) {
  __m512i sums[4] = {};
  const uint64_t piece = bytes / way.streams / kStep * kStep;
  for (uint64_t at = 0; at < piece; at += kStep) {
    for (uint64_t stream = 0; stream < way.streams; ++stream) {
      const std::byte* from = p + stream * piece + at;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (way.ahead_bytes > 0) {
          _mm_prefetch(reinterpret_cast<const char*>(from) + way.ahead_bytes + i * 64, _MM_HINT_T0);
        }
        sums[i] = _mm512_add_epi64(sums[i], _mm512_loadu_si512(from + i * 64));
      }
    }
  }
#pragma GCC unroll 16
  for (__m512i& sum : sums) asm volatile("" : "+v"(sum));
}

__attribute__((target("avx2"))) void read_lines_avx2(const std::byte* p, uint64_t bytes,
                                                     ReadWay way) {
  __m256i sums[8] = {};
  const uint64_t piece = bytes / way.streams / kStep * kStep;
  for (uint64_t at = 0; at < piece; at += kStep) {
    for (uint64_t stream = 0; stream < way.streams; ++stream) {
      const std::byte* from = p + stream * piece + at;
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        if (i % 2 == 0 && way.ahead_bytes > 0) {
          _mm_prefetch(reinterpret_cast<const char*>(from) + way.ahead_bytes + i * 32, _MM_HINT_T0);
        }
        const auto* line = reinterpret_cast<const __m256i*>(from + i * 32);
        sums[i] = _mm256_add_epi64(sums[i], _mm256_loadu_si256(line));
      }
    }
  }
#pragma GCC unroll 16
  for (__m256i& sum : sums) asm volatile("" : "+x"(sum));
}

void read_lines_plain(const std::byte* p, uint64_t bytes, ReadWay way) {
  uint64_t sums[4] = {};
  const uint64_t piece = bytes / way.streams / kStep * kStep;
  for (uint64_t at = 0; at < piece; at += sizeof(sums)) {
    for (uint64_t stream = 0; stream < way.streams; ++stream) {
      uint64_t words[4];
      std::memcpy(words, p + stream * piece + at, sizeof(words));
      for (int i = 0; i < 4; ++i) sums[i] += words[i];
    }
  }
  for (uint64_t& sum : sums) benchmark::DoNotOptimize(sum);
}

// A buffer that cores read, each its part, in the way that suits best.
class Reading {
 public:
  Reading(uint64_t size_bytes, int64_t cores)
      : buffer_(size_bytes),
        cores_(cores),
        part_(size_bytes / static_cast<uint64_t>(cores) / kGrain * kGrain) {
    const IsaLevel level = cpu::detect_isa().level;
    read_ = level == IsaLevel::avx512 ? read_lines_avx512
            : level == IsaLevel::avx2 ? read_lines_avx2
                                      : read_lines_plain;
    choose_way();
  }

  ReadWay way() const { return way_; }
  uint64_t pass_bytes() const { return part_ * static_cast<uint64_t>(cores_); }
  // Seconds for so many passes over the whole buffer.
  double passes(int64_t count) const {
    return time_on_cores(cores_, [&](int64_t core) {
      for (int64_t i = 0; i < count; ++i) read_(part_of(core), part_, way_);
    });
  }

 private:
  const std::byte* part_of(int64_t core) const {
    return buffer_.data() + static_cast<uint64_t>(core) * part_;
  }

  // Each way in turn, a few times, with the median counting: what else the machine does meanwhile
  // slows all of them. A trial reads 50 MB, of a large buffer the next ones: as far from the
  // caches as in a whole pass.
  void choose_way() {
    constexpr int kRoundsOfTrial = 7;
    const uint64_t trial_bytes = uint64_t{50'000'000} / static_cast<uint64_t>(cores_);
    const uint64_t window = std::min(part_, trial_bytes / kGrain * kGrain);
    const uint64_t repeats = trial_bytes / window;
    std::vector<ReadWay> ways;
    for (const uint64_t ahead : kAheadKiB) {
      for (const uint64_t streams : kStreams) ways.push_back({ahead << 10, streams});
    }
    std::vector<std::vector<double>> seconds(ways.size());
    uint64_t at = 0;
    for (int round = 0; round < kRoundsOfTrial; ++round) {
      for (size_t i = 0; i < ways.size(); ++i) {
        seconds[i].push_back(time_on_cores(cores_, [&](int64_t core) {
          for (uint64_t n = 0; n < repeats; ++n) read_(part_of(core) + at, window, ways[i]);
        }));
        at = at + 2 * window <= part_ ? at + window : 0;
      }
    }
    double best = 0;
    for (size_t i = 0; i < ways.size(); ++i) {
      std::nth_element(seconds[i].begin(), seconds[i].begin() + kRoundsOfTrial / 2,
                       seconds[i].end());
      const double median = seconds[i][kRoundsOfTrial / 2];
      if (i == 0 || median < best) {
        best = median;
        way_ = ways[i];
      }
    }
  }

  HugeBuffer buffer_;
  int64_t cores_;
  uint64_t part_;  // bytes of a core
  void (*read_)(const std::byte*, uint64_t, ReadWay) = nullptr;
  ReadWay way_;
};

// Google Benchmark calls this again for each guess of how often it has to run, and for each
// repetition: `last` keeps the buffer and the chosen way, of one benchmark at a time.
struct LastReading {
  int64_t size_mb = 0;
  int64_t cores = 0;
  std::unique_ptr<Reading> reading;
};

void read_memory(benchmark::State& state, LastReading& last) {
  if (last.size_mb != state.range(0) || last.cores != state.range(1)) {
    last.reading.reset();  // before the next buffer is taken
    last = {.size_mb = state.range(0),
            .cores = state.range(1),
            .reading = std::make_unique<Reading>(static_cast<uint64_t>(state.range(0)) * 1'000'000,
                                                 state.range(1))};
  }
  const Reading& reading = *last.reading;
  // Enough passes that starting threads does not count.
  const int64_t passes = std::max<int64_t>(400 / state.range(0), 1);
  for (auto _ : state) state.SetIterationTime(reading.passes(passes));
  state.counters["GB/s"] =
      rate_of(static_cast<double>(reading.pass_bytes()) * static_cast<double>(passes), state);
  state.counters["ahead_KiB"] = static_cast<double>(reading.way().ahead_bytes >> 10);
  state.counters["streams"] = static_cast<double>(reading.way().streams);
}

// --- The thread pool -----------------------------------------------------------------------------

// What meeting costs. With more threads than free cores it means nothing.
void pool_job(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  const int64_t pieces = 8;
  std::atomic<int64_t> helped = 0;
  for (auto _ : state) {
    pool.run(pieces, [&](int64_t, int thread) {
      if (thread > 0) helped.fetch_add(1, std::memory_order_relaxed);
    });
  }
  state.counters["helped"] =
      static_cast<double>(helped) / static_cast<double>(state.iterations() * pieces);
}

void spin_ns(double ns) {
  const double end = seconds_now() + ns * 1e-9;
  while (seconds_now() < end) {
  }
}

void pool_meeting(benchmark::State& state) {
  constexpr double kPieceNs = 1000;
  ThreadPool pool(2);
  const double begin = seconds_now();
  for (auto _ : state) pool.run(2, [](int64_t, int) { spin_ns(kPieceNs); });
  state.counters["over_ns"] =
      (seconds_now() - begin) * 1e9 / static_cast<double>(state.iterations()) - kPieceNs;
}

// The caller waits in its own piece until a helper has begun another, 20 ms at most.
void pool_wake_up(benchmark::State& state) {
  ThreadPool pool(2);
  int64_t missed = 0;
  for (auto _ : state) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // helpers park long before
    std::atomic<double> woken = 0;
    const double begin = seconds_now();
    pool.run(2, [&](int64_t, int thread) {
      if (thread > 0) woken = seconds_now();
      while (thread == 0 && woken == 0 && seconds_now() < begin + 0.02) {
      }
    });
    if (woken == 0) ++missed;
    state.SetIterationTime(woken == 0 ? 0.02 : woken - begin);
  }
  state.counters["missed"] = static_cast<double>(missed);
}

// --- Names ---------------------------------------------------------------------------------------

void register_all(const std::vector<int64_t>& sizes_mb, const bench::ArithmeticOptions& options,
                  const std::shared_ptr<std::vector<std::string>>& failures) {
  const std::vector<int64_t>& cores = options.cores;
  const auto last = std::make_shared<LastReading>();
  auto* read = benchmark::RegisterBenchmark(
      "read", [last](benchmark::State& state) { read_memory(state, *last); });
  read->ArgNames({"MB", "cores"})->UseManualTime()->Unit(benchmark::kMillisecond);
  for (const int64_t size : sizes_mb) {
    for (const int64_t count : cores) read->Args({size, count});
  }
  bench::register_arithmetic(options, failures);
  auto* job = benchmark::RegisterBenchmark("pool_job", pool_job);
  job->ArgName("threads")->UseRealTime();
  for (const int64_t count : cores) job->Arg(count);
  benchmark::RegisterBenchmark("pool_meeting", pool_meeting)->UseRealTime();
  benchmark::RegisterBenchmark("pool_wake_up", pool_wake_up)
      ->UseManualTime()
      ->Iterations(200)
      ->Unit(benchmark::kMicrosecond);
}

// The numbers of "16,98", each of 1 to `most`; empty if they are none.
std::vector<int64_t> parse_numbers(std::string_view text, int64_t most) {
  std::vector<int64_t> numbers;
  while (!text.empty()) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || number < 1 || number > most) return {};
    numbers.push_back(number);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (text == "," || (!text.empty() && text.front() != ',')) return {};
    if (!text.empty()) text.remove_prefix(1);
  }
  return numbers;
}

// Takes the argument if it begins with `option`. False: it does, and has no such numbers.
bool take_numbers(std::string_view argument, std::string_view option, int64_t most,
                  std::vector<int64_t>& numbers) {
  if (!argument.starts_with(option)) return true;
  numbers = parse_numbers(argument.substr(option.size()), most);
  return !numbers.empty();
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  std::vector<int64_t> sizes_mb = {16, 98, 250, 1500};
  strata::bench::ArithmeticOptions options{.cores = {1, 2}};
  constexpr std::string_view kSteps = "--steps-per-cycle=";
  std::vector<char*> arguments;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (!strata::take_numbers(argument, "--sizes=", 1'000'000, sizes_mb)) {
      std::fprintf(stderr, "machine_bench: %s: sizes in MB are wanted, such as 16,98,1500\n",
                   argv[i]);
      return 2;
    }
    if (!strata::take_numbers(argument, "--cores=", 256, options.cores)) {
      std::fprintf(stderr, "machine_bench: %s: numbers of cores are wanted, such as 1,2,4\n",
                   argv[i]);
      return 2;
    }
    if (argument.starts_with(kSteps)) {
      options.steps_per_cycle = std::strtod(argv[i] + kSteps.size(), nullptr);
      if (!(options.steps_per_cycle > 0 && options.steps_per_cycle <= 64)) {
        std::fprintf(stderr, "machine_bench: %s: a number up to 64 is wanted, such as 2\n",
                     argv[i]);
        return 2;
      }
      continue;
    }
    if (!argument.starts_with("--sizes=") && !argument.starts_with("--cores=")) {
      arguments.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(arguments.size());
  const auto failures = std::make_shared<std::vector<std::string>>();
  strata::register_all(sizes_mb, options, failures);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 2;
  benchmark::RunSpecifiedBenchmarks();
  for (const std::string& failure : *failures) {
    std::fprintf(stderr, "machine_bench: %s\n", failure.c_str());
  }
  return failures->empty() ? 0 : 1;
}
