// A quantised KV cache must not get worse as the context grows: the perplexity of SmolLM2 on a
// text, quarter by quarter, with each KV type against F16.
//
// Method: the ids of the reference texts one after another, about 2,000 with repeats, in one
// sequence. The model is not in the repository: STRATA_MODELS_DIR names its folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/model_runner.h"

namespace strata::test {
namespace {

constexpr size_t kTokens = 1920;
constexpr size_t kParts = 4;

double negative_log_likelihood(std::span<const float> logits, int32_t id) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return std::log(sum) + best - logits[static_cast<size_t>(id)];
}

using Perplexities = std::array<double, kParts>;

Perplexities perplexities(const std::string& path, const std::vector<int32_t>& tokens,
                          DType kv_type) {
  Perplexities sums{};
  const size_t part_tokens = tokens.size() / kParts;
  RunSetup setup;
  setup.kv_type = kv_type;
  setup.on_logits = [&](size_t, size_t position, std::span<const float> logits) {
    if (position + 1 >= tokens.size()) return;
    sums[std::min(position / part_tokens, kParts - 1)] +=
        negative_log_likelihood(logits, tokens[position + 1]);
  };
  const auto results = evaluate(path, {tokens}, setup);
  EXPECT_TRUE(results.ok()) << results.status().to_string();
  for (double& sum : sums) sum = std::exp(sum / static_cast<double>(part_tokens));
  return sums;
}

TEST(KvGrowth, QuantisedCachesStayNearF16AtEveryLength) {
  const char* folder = std::getenv("STRATA_MODELS_DIR");
  if (folder == nullptr) GTEST_SKIP() << "STRATA_MODELS_DIR is not set";
  const std::string path = std::string(folder) + "/smollm2.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const nlohmann::json reference = nlohmann::json::parse(
      std::ifstream(std::string(STRATA_TEST_DATA) + "/references/smollm2.json"));
  std::vector<int32_t> tokens;
  while (tokens.size() < kTokens) {
    for (const nlohmann::json& sequence : reference["sequences"]) {
      const std::vector<int32_t> ids = sequence["ids"];
      tokens.insert(tokens.end(), ids.begin(), ids.end());
    }
  }
  tokens.resize(kTokens);
  const Perplexities f16 = perplexities(path, tokens, DType::f16);
  for (const auto& [type, bound] : {std::pair{DType::q8_0, 1.03}, std::pair{DType::q4_0, 1.6}}) {
    const Perplexities quantised = perplexities(path, tokens, type);
    for (size_t part = 0; part < kParts; ++part) {
      std::printf("%s, part %zu: perplexity %.3f, f16 %.3f\n",
                  std::string(dtype_name(type)).c_str(), part, quantised[part], f16[part]);
      EXPECT_LT(quantised[part] / f16[part], bound) << dtype_name(type) << " part " << part;
    }
  }
}

}  // namespace
}  // namespace strata::test
