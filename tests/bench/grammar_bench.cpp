// How long a mask takes at each step of an answer, over a vocabulary of 150,000 tokens.
//
//   grammar_bench VECTORS.json [--vocabulary FILE.gguf] [--json]
//
// VECTORS.json: a list of {"name", "schema", "documents": [text, ...]}; the documents are cut into
// tokens and masks are asked for before each one. A first round is cold: nothing is known of the
// schema. The second has seen the same documents before, as a server has after a few requests.
// tests/bench/grammar_peer.py measures llama.cpp's grammar on the same file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/gguf/gguf_file.h"
#include "runtime/grammar/constraint.h"
#include "runtime/text/tokenizer.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

struct Steps {
  std::vector<double> mask_us;
  std::vector<double> accept_us;
};

// Masks and tokens of one document. False if it does not fit.
bool run(grammar::Constraint constraint, const std::vector<int32_t>& tokens, Steps& steps) {
  for (const int32_t token : tokens) {
    Clock::time_point begin = Clock::now();
    const TokenMask& mask = constraint.mask({});
    steps.mask_us.push_back(microseconds_since(begin));
    if (!mask.allows(token)) return false;
    begin = Clock::now();
    if (!constraint.accept(token)) return false;
    steps.accept_us.push_back(microseconds_since(begin));
  }
  return constraint.can_end();
}

void print(const char* round, std::vector<double> times, bool json) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[std::min(times.size() - 1,
                          static_cast<size_t>(part * static_cast<double>(times.size())))];
  };
  fmt::print(
      fmt::runtime(json ? "{{\"round\":\"{}\",\"steps\":{},\"p50_us\":{:.2f},\"p90_us\":{:.2f},"
                          "\"p99_us\":{:.2f},\"worst_us\":{:.2f}}}\n"
                        : "{:<14} {:>6} steps  p50 {:8.2f}  p90 {:8.2f}  p99 {:8.2f}  worst "
                          "{:8.2f} us\n"),
      round, times.size(), at(0.5), at(0.9), at(0.99), times.back());
}

int run_all(const std::string& vectors_path, const std::string& vocabulary_path, bool json) {
  const auto file = GgufFile::open(vocabulary_path).value();
  const auto tokenizer = make_tokenizer(file->metadata()).value();
  Clock::time_point begin = Clock::now();
  const auto vocabulary = grammar::Vocabulary::of(*tokenizer);
  if (!json) {
    fmt::print("{} tokens, {} nodes in {:.0f} ms\n", vocabulary->size(), vocabulary->node_count(),
               microseconds_since(begin) / 1e3);
  }
  std::ifstream in(vectors_path);
  const nlohmann::json vectors = nlohmann::json::parse(in);
  Steps cold;
  Steps warm;
  std::vector<double> compile_us;
  size_t refused = 0;
  for (const auto& vector : vectors) {
    grammar::GrammarCache cache(vocabulary);
    const GrammarSpec spec{.kind = GrammarSpec::Kind::json_schema, .text = vector["schema"].dump()};
    begin = Clock::now();
    const Result<grammar::Constraint> first = cache.start(spec);
    compile_us.push_back(microseconds_since(begin));
    if (!first.ok()) {
      fmt::print(stderr, "{}\n", first.status().to_string());
      return 1;
    }
    for (Steps* steps : {&cold, &warm}) {
      for (const auto& document : vector["documents"]) {
        const std::string text = document.get<std::string>();
        if (!run(cache.start(spec).value(), tokenizer->encode(text), *steps)) ++refused;
      }
    }
  }
  print("compile", std::move(compile_us), json);
  print("mask, cold", std::move(cold.mask_us), json);
  print("mask, warm", std::move(warm.mask_us), json);
  print("accept, warm", std::move(warm.accept_us), json);
  if (refused > 0) fmt::print(stderr, "{} documents do not fit\n", refused);
  return refused == 0 ? 0 : 1;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  std::string vectors;
  std::string vocabulary = STRATA_TEST_VOCABULARIES "/qwen2.gguf";
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      json = true;
    else if (std::strcmp(argv[i], "--vocabulary") == 0 && i + 1 < argc)
      vocabulary = argv[++i];
    else
      vectors = argv[i];
  }
  if (vectors.empty()) {
    fmt::print(stderr, "usage: grammar_bench VECTORS.json [--vocabulary FILE.gguf] [--json]\n");
    return 2;
  }
  return strata::run_all(vectors, vocabulary, json);
}
