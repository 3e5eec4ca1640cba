// llama.cpp's grammar on the file that grammar_bench reads: how long it takes to find the tokens
// that fit, at each step of the same documents. Not a part of the build:
// tests/bench/grammar_peer.sh compiles it against a llama.cpp tree.
//
//   grammar_peer VECTORS.json VOCABULARY.gguf
//
// Timed is llama_sampler_apply() of a grammar sampler over the whole vocabulary, which is what its
// server does where a grammar must be kept to.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "json-schema-to-grammar.h"
#include "json.h"
#include "llama.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  llama_model* model = llama_model_load_from_file(argv[2], params);
  if (model == nullptr) return 1;
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const int n_vocab = llama_vocab_n_tokens(vocab);
  std::ifstream in(argv[1]);
  const nlohmann::json vectors = nlohmann::json::parse(in);
  std::vector<double> times;
  std::vector<llama_token_data> all(static_cast<size_t>(n_vocab));
  for (const auto& vector : vectors) {
    const std::string grammar = json_schema_to_grammar(common_json::parse(vector["schema"].dump()));
    for (const auto& document : vector["documents"]) {
      const std::string text = document.get<std::string>();
      std::vector<llama_token> tokens(text.size() + 8);
      const int count =
          llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens.data(),
                         static_cast<int>(tokens.size()), false, false);
      tokens.resize(static_cast<size_t>(std::max(count, 0)));
      llama_sampler* sampler = llama_sampler_init_grammar(vocab, grammar.c_str(), "root");
      if (sampler == nullptr) {
        std::fprintf(stderr, "%s: no grammar\n", vector["name"].get<std::string>().c_str());
        continue;
      }
      for (const llama_token token : tokens) {
        for (int id = 0; id < n_vocab; ++id) all[static_cast<size_t>(id)] = {id, 0.0F, 0.0F};
        llama_token_data_array candidates = {all.data(), all.size(), -1, false};
        const auto begin = std::chrono::steady_clock::now();
        llama_sampler_apply(sampler, &candidates);
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        times.push_back(took.count());
        if (std::isinf(all[static_cast<size_t>(token)].logit)) break;  // another order or spelling
        llama_sampler_accept(sampler, token);
      }
      llama_sampler_free(sampler);
    }
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return times[std::min(times.size() - 1,
                          static_cast<size_t>(part * static_cast<double>(times.size())))];
  };
  std::printf("llama.cpp      %6zu steps  p50 %8.2f  p90 %8.2f  p99 %8.2f  worst %8.2f us\n",
              times.size(), at(0.5), at(0.9), at(0.99), times.back());
  return 0;
}
