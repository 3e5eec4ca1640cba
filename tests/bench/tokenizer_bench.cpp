// How fast texts become tokens, for the packed test vocabularies. One family:
// tokenizer_bench --benchmark_filter=qwen2
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "runtime/gguf/gguf_file.h"
#include "runtime/text/tokenizer.h"

namespace strata {
namespace {

std::shared_ptr<GgufFile> open_vocabulary(const std::string& name) {
  return GgufFile::open(std::string(STRATA_TEST_VOCABULARIES "/") + name + ".gguf").value();
}

std::string repeated(std::string_view unit, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

constexpr std::string_view kProse =
    "The quick brown fox jumps over the lazy dog; it's 42 years old, isn't it? Grüße aus Köln.\n"
    "def f(a, b=1):\n    return {'k': [a, b]}  # 你好，世界！\n\n";

void encode(benchmark::State& state, const std::string& name, std::string_view unit) {
  const auto tokenizer = make_tokenizer(open_vocabulary(name)->metadata()).value();
  const std::string text = repeated(unit, size_t{1} << 20);
  size_t tokens = 0;
  for (auto _ : state) {
    const std::vector<int32_t> ids = tokenizer->encode(text);
    tokens += ids.size();
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(text.size()));
  state.counters["tokens/s"] =
      benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}

void load(benchmark::State& state, const std::string& name) {
  const auto file = open_vocabulary(name);
  for (auto _ : state) benchmark::DoNotOptimize(make_tokenizer(file->metadata()).value());
}

void register_all() {
  for (const std::string name : {"llama-spm", "gpt-2", "llama-bpe", "qwen2"}) {
    benchmark::RegisterBenchmark(("load/" + name).c_str(), load, name)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("encode_prose/" + name).c_str(), encode, name, kProse)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("encode_one_letter/" + name).c_str(), encode, name, "a")
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  strata::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
