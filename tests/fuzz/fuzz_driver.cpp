// Runs a libFuzzer target without libFuzzer: mutations of a small corpus, by a seeded generator.
//
// It sees no coverage, so it finds less than clang's build does; it is what runs in every test run
// with any compiler. Input k of seed s is always the same: after a crash, "--seed s --only k"
// repeats it. A target that takes over a second on one input counts as hung.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/corpus.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Set by the sanitizers' runtime where there is one.
extern "C" void __sanitizer_set_death_callback(void (*)()) __attribute__((weak));

namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint64_t seed = std::random_device()();
  uint64_t iterations = ~uint64_t{0};
  double seconds = 5;
  int64_t only = -1;
};

// What the handlers of a crash print; written before each input. Volatile: read in a signal.
volatile uint64_t g_seed = 0;
volatile uint64_t g_iteration = 0;

// Only what is safe in a signal handler.
void report_place() {
  char text[128];
  const int length = std::snprintf(text, sizeof text, "\nrepeat with: --seed %llu --only %llu\n",
                                   static_cast<unsigned long long>(g_seed),
                                   static_cast<unsigned long long>(g_iteration));
  if (length > 0 && write(STDERR_FILENO, text, static_cast<size_t>(length)) < 0) _exit(2);
}

void on_signal(int signal_number) {
  report_place();
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string next(const std::vector<std::string>& corpus) {
    std::string input = corpus[below(corpus.size())];
    for (uint64_t i = 1 + below(6); i > 0; --i) mutate(input, corpus);
    return input;
  }

 private:
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : random_() % bound; }

  void mutate(std::string& input, const std::vector<std::string>& corpus) {
    if (input.empty()) return;
    const size_t at = below(input.size());
    switch (below(8)) {
      case 0:
        input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
        return;
      case 1:
        input[at] = static_cast<char>(random_());
        return;
      case 2:
      case 3:
        put_number(input, at);
        return;
      case 4:
        input.resize(at);
        return;
      case 5:
        input.erase(at, 1 + below(16));
        return;
      case 6:
        input.insert(at, std::string(1 + below(16), static_cast<char>(random_())));
        return;
      default: {
        const std::string& other = corpus[below(corpus.size())];
        const size_t from = below(other.size());
        const std::string piece = other.substr(from, 1 + below(64));
        input.replace(at, std::min(piece.size(), input.size() - at), piece);
      }
    }
  }

  // A number near a power of two, where arithmetic on sizes goes wrong, of 4 or 8 bytes.
  void put_number(std::string& input, size_t at) {
    const uint64_t value =
        (uint64_t{1} << below(64)) + below(5) - 2 + (below(4) == 0 ? uint64_t{1} << 63 : 0);
    const size_t size = std::min<size_t>(below(2) == 0 ? 4 : 8, input.size() - at);
    std::memcpy(input.data() + at, &value, size);
  }

  std::mt19937_64 random_;
};

// False for an unknown option.
bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view name = argv[i];
    const char* value = argv[i + 1];
    if (name == "--seed") {
      options.seed = std::strtoull(value, nullptr, 10);
    } else if (name == "--iterations") {
      options.iterations = std::strtoull(value, nullptr, 10);
    } else if (name == "--seconds") {
      options.seconds = std::strtod(value, nullptr);
    } else if (name == "--only") {
      options.only = std::strtoll(value, nullptr, 10);
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

// False if the target took over a second of the processor's time: other processes may be busy.
bool run_one(const std::vector<std::string>& corpus, uint64_t seed, uint64_t iteration) {
  g_iteration = iteration;
  const std::string input = Mutator(seed * 0x9E3779B97F4A7C15 + iteration).next(corpus);
  const std::clock_t start = std::clock();
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  return std::clock() - start < CLOCKS_PER_SEC;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: %s [--seed N] [--iterations N] [--seconds S] [--only K]\n",
                 argv[0]);
    return 2;
  }
  g_seed = options.seed;
  for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE}) std::signal(number, on_signal);
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(report_place);
  const std::vector<std::string> corpus = strata::fuzz::corpus();
  std::printf("seed %llu\n", static_cast<unsigned long long>(options.seed));
  std::fflush(stdout);
  if (options.only >= 0) {
    return run_one(corpus, options.seed, static_cast<uint64_t>(options.only)) ? 0 : 1;
  }
  for (const std::string& sound : corpus) {
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(sound.data()), sound.size());
  }
  const auto end = Clock::now() + std::chrono::duration<double>(options.seconds);
  uint64_t done = 0;
  for (; done < options.iterations && Clock::now() < end; ++done) {
    if (!run_one(corpus, options.seed, done)) {
      report_place();
      return 1;
    }
  }
  std::printf("%llu inputs\n", static_cast<unsigned long long>(done));
  return done > 0 ? 0 : 1;
}
