// The two real models against the reference distributions of their dequantised weights.
//
// Method: tests/data/references holds, for each position of four texts, the 40 most likely ids of
// an F32 run, and how far llama.cpp is from it with the quantised file. Distance is
// KL(reference || ours) summed over the listed ids, mean over all positions; ours must be no larger
// than llama.cpp's. The models are not in the repository: STRATA_MODELS_DIR names their folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/model_runner.h"

namespace strata::test {
namespace {

using Json = nlohmann::json;

class Distance {
 public:
  void add(std::span<const float> logits, const Json& top, int32_t argmax) {
    const auto best = std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - *best);
    const double log_sum = std::log(sum) + *best;
    for (const Json& entry : top) {
      const double log_p = entry[1];
      const double log_q = logits[entry[0].get<size_t>()] - log_sum;
      kl_ += std::exp(log_p) * (log_p - log_q);
    }
    agreeing_ += best - logits.begin() == argmax ? 1 : 0;
    ++positions_;
  }
  double mean_kl() const { return kl_ / positions_; }
  double agreement() const { return agreeing_ / positions_; }

 private:
  double kl_ = 0;
  double agreeing_ = 0;
  double positions_ = 0;
};

class RealModel : public testing::TestWithParam<const char*> {};

TEST_P(RealModel, IsNoFurtherFromTheReferenceThanTheYardstick) {
  const char* folder = std::getenv("STRATA_MODELS_DIR");
  if (folder == nullptr) GTEST_SKIP() << "STRATA_MODELS_DIR is not set";
  const Json reference = Json::parse(
      std::ifstream(std::string(STRATA_TEST_DATA) + "/references/" + GetParam() + ".json"));
  const std::string path = std::string(folder) + "/" + reference["model"].get<std::string>();
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  Sequences sequences;
  for (const Json& s : reference["sequences"]) sequences.push_back(s["ids"]);

  Distance distance;
  RunSetup setup;
  setup.chunk = 64;
  setup.on_logits = [&](size_t sequence, size_t position, std::span<const float> logits) {
    const Json& wanted = reference["sequences"][sequence];
    distance.add(logits, wanted["top"][position], wanted["argmax"][position]);
  };
  const auto results = evaluate(path, sequences, setup);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const Json& yardstick = reference["quantised_engine"];
  std::printf("%s: mean KL %.5f (yardstick %.5f), top-1 %.3f (%.3f)\n", GetParam(),
              distance.mean_kl(), yardstick["mean_kl"].get<double>(), distance.agreement(),
              yardstick["top1_agreement"].get<double>());
  EXPECT_LE(distance.mean_kl(), yardstick["mean_kl"].get<double>());
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel, testing::Values("smollm2", "gemma3-270m-q4_k_m"),
                         [](const auto& parameter) {
                           return std::string(parameter.param).substr(0, 6);
                         });

}  // namespace
}  // namespace strata::test
