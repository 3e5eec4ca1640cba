// How long a mask takes at each step of an answer, over a vocabulary of 150,000 tokens.
//
//   grammar_bench VECTORS.json [--vocabulary FILE.gguf] [--each] [--verify] [--json]
//
// VECTORS.json: a list of {"name", "schema" | "gbnf" | "regex", "documents": [text, ...]}; the
// documents are cut into tokens and masks are asked for before each one. A first round is cold:
// nothing is known of the grammar. The second has seen the same documents before, as a server has
// after a few requests. tests/data/grammar/bench.json are schemas as people write them,
// bench_hard.json those that a mask is slow for.
//
// --each prints every grammar by itself, with the text before its slowest mask. --verify tries
// every token at every step against the matcher, which takes minutes. The last line is a digest
// over all masks: two builds that print the same allow the same. tests/bench/grammar_peer.sh
// measures llama.cpp's grammar on the same file.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
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

// Of this thread alone: on a busy machine the longest of some thousand steps is else one that was
// interrupted.
double processor_microseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

struct Options {
  std::string vectors;
  std::string vocabulary = STRATA_TEST_VOCABULARIES "/qwen2.gguf";
  bool each = false;
  bool verify = false;
  bool json = false;
};

struct Steps {
  std::vector<double> mask_us;
  std::vector<double> accept_us;
  std::string before_worst;  // the text so far
  double worst_us = 0;       // of processor time

  void add(const Steps& other) {
    worst_us = std::max(worst_us, other.worst_us);
    mask_us.insert(mask_us.end(), other.mask_us.begin(), other.mask_us.end());
    accept_us.insert(accept_us.end(), other.accept_us.begin(), other.accept_us.end());
  }
};

class Bench {
 public:
  Bench(const Options& options, const Tokenizer& tokenizer)
      : options_(options), tokenizer_(tokenizer), vocabulary_(grammar::Vocabulary::of(tokenizer)) {}

  int run(const nlohmann::json& vectors) {
    Steps cold;
    Steps warm;
    for (const auto& vector : vectors) {
      if (!run_one(vector, cold, warm)) return 1;
    }
    print("compile", compile_us_, 0, "");
    print("mask, cold", cold.mask_us, cold.worst_us, "");
    print("mask, warm", warm.mask_us, warm.worst_us, "");
    print("accept, warm", warm.accept_us, 0, "");
    fmt::print(fmt::runtime(options_.json ? "{{\"masks\":\"{:016x}\"}}\n" : "masks {:016x}\n"),
               hash_);
    if (refused_ > 0) fmt::print(stderr, "{} documents do not fit\n", refused_);
    if (wrong_ > 0) fmt::print(stderr, "{} tokens are masked wrongly\n", wrong_);
    return refused_ + wrong_ == 0 ? 0 : 1;
  }

 private:
  bool run_one(const nlohmann::json& vector, Steps& cold_all, Steps& warm_all) {
    GrammarSpec spec{.kind = GrammarSpec::Kind::json_schema, .text = ""};
    if (vector.contains("gbnf")) {
      spec = {.kind = GrammarSpec::Kind::gbnf, .text = vector["gbnf"].get<std::string>()};
    } else if (vector.contains("regex")) {
      spec = {.kind = GrammarSpec::Kind::regex, .text = vector["regex"].get<std::string>()};
    } else {
      spec.text = vector["schema"].dump();
    }
    grammar::GrammarCache cache(vocabulary_);
    const Clock::time_point begin = Clock::now();
    const Result<grammar::Constraint> first = cache.start(spec);
    compile_us_.push_back(microseconds_since(begin));
    const auto name = vector["name"].get<std::string>();
    if (!first.ok()) {
      fmt::print(stderr, "{}: {}\n", name, first.status().to_string());
      return false;
    }
    Steps cold;
    Steps warm;
    for (Steps* steps : {&cold, &warm}) {
      for (const auto& document : vector["documents"]) {
        const std::vector<int32_t> tokens = tokenizer_.encode(document.get<std::string>());
        if (!run_document(cache.start(spec).value(), tokens, *steps)) {
          fmt::print(stderr, "{}: a document does not fit\n", name);
          ++refused_;
        }
      }
    }
    if (options_.each) {
      print(name + ", compile", {compile_us_.back()}, 0, "");
      print(name + ", cold", cold.mask_us, cold.worst_us, cold.before_worst);
      print(name + ", warm", warm.mask_us, warm.worst_us, "");
    }
    cold_all.add(cold);
    warm_all.add(warm);
    return true;
  }

  // Masks and tokens of one document. False if it does not fit.
  bool run_document(grammar::Constraint constraint, const std::vector<int32_t>& tokens,
                    Steps& steps) {
    std::string text;
    for (const int32_t token : tokens) {
      const double used_before = processor_microseconds();
      Clock::time_point begin = Clock::now();
      const TokenMask& mask = constraint.mask({});
      steps.mask_us.push_back(microseconds_since(begin));
      const double used = processor_microseconds() - used_before;
      if (used > steps.worst_us) {
        steps.worst_us = used;
        steps.before_worst = text;
      }
      for (const uint64_t word : mask.words()) hash_ = (hash_ ^ word) * 0x100000001B3ULL;
      if (options_.verify) verify(constraint, mask);
      if (!mask.allows(token)) return false;
      begin = Clock::now();
      if (!constraint.accept(token)) return false;
      steps.accept_us.push_back(microseconds_since(begin));
      text += vocabulary_->text(token);
    }
    return constraint.can_end();
  }

  void verify(const grammar::Constraint& constraint, const TokenMask& mask) {
    for (int32_t id = 0; id < vocabulary_->size(); ++id) {
      grammar::Constraint copy = constraint;
      const bool fits = copy.accept(id);
      const bool twice = copy.failure().message().find("already has") != std::string::npos;
      if (!twice && fits != mask.allows(id)) ++wrong_;
    }
  }

  void print(const std::string& what, std::vector<double> times, double worst_used,
             const std::string& where) const {
    if (times.empty()) return;
    std::sort(times.begin(), times.end());
    const auto at = [&](double part) {
      return times[std::min(times.size() - 1,
                            static_cast<size_t>(part * static_cast<double>(times.size())))];
    };
    const std::string used = worst_used > 0 ? fmt::format("{:.2f}", worst_used) : "null";
    if (options_.json) {
      fmt::print(
          "{{\"round\":\"{}\",\"steps\":{},\"p50_us\":{:.2f},\"p90_us\":{:.2f},\"p99_us\":{:.2f},"
          "\"worst_us\":{:.2f},\"worst_processor_us\":{}}}\n",
          what, times.size(), at(0.5), at(0.9), at(0.99), times.back(), used);
      return;
    }
    fmt::print("{:<24} {:>5} steps  p50 {:8.2f}  p90 {:8.2f}  p99 {:8.2f}  worst {:9.2f} us", what,
               times.size(), at(0.5), at(0.9), at(0.99), times.back());
    if (worst_used > 0) fmt::print(" ({} of processor time)", used);
    if (!where.empty()) {
      const size_t from = where.size() > 40 ? where.size() - 40 : 0;
      fmt::print("  after {}", nlohmann::json(where.substr(from))
                                   .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    }
    fmt::print("\n");
  }

  const Options& options_;
  const Tokenizer& tokenizer_;
  const std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  std::vector<double> compile_us_;
  size_t refused_ = 0;
  size_t wrong_ = 0;
  uint64_t hash_ = 0xCBF29CE484222325ULL;
};

int run_all(const Options& options) {
  const auto file = GgufFile::open(options.vocabulary).value();
  const auto tokenizer = make_tokenizer(file->metadata()).value();
  const Clock::time_point begin = Clock::now();
  Bench bench(options, *tokenizer);
  if (!options.json) fmt::print("vocabulary in {:.0f} ms\n", microseconds_since(begin) / 1e3);
  std::ifstream in(options.vectors);
  return bench.run(nlohmann::json::parse(in));
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  strata::Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0)
      options.json = true;
    else if (std::strcmp(argv[i], "--each") == 0)
      options.each = true;
    else if (std::strcmp(argv[i], "--verify") == 0)
      options.verify = true;
    else if (std::strcmp(argv[i], "--vocabulary") == 0 && i + 1 < argc)
      options.vocabulary = argv[++i];
    else
      options.vectors = argv[i];
  }
  if (options.vectors.empty()) {
    fmt::print(stderr,
               "usage: grammar_bench VECTORS.json [--vocabulary FILE.gguf] [--each] [--verify] "
               "[--json]\n");
    return 2;
  }
  return strata::run_all(options);
}
