// Tiny quantised models against the same weights dequantised, and against another engine.
//
// Method: tests/data/quants holds logits of the weights dequantised and run in F32, and those of
// llama.cpp, whose kernels round activations to 8 bits as ours do. F16 and BF16 weights meet F32
// activations, so they must agree with the first to 0.001 std of the logits; block quants must lie
// within rms 0.05 std of either, over the last positions of all cases.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/model_runner.h"

namespace strata::test {
namespace {

using Json = nlohmann::json;

// Root of the mean square difference over all values that were added.
class RmsDifference {
 public:
  void add(const std::vector<float>& a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      sum_ += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    }
    count_ += static_cast<double>(a.size());
  }
  double value() const { return std::sqrt(sum_ / count_); }

 private:
  double sum_ = 0;
  double count_ = 0;
};

class QuantisedModel : public testing::TestWithParam<const char*> {};

TEST_P(QuantisedModel, LiesNearBothReferences) {
  const std::string base = std::string(STRATA_TEST_DATA) + "/quants/" + GetParam();
  const Json reference = Json::parse(std::ifstream(base + ".json"));
  Sequences sequences;
  for (const Json& c : reference["cases"]) sequences.push_back(c["tokens"]);
  const auto results = evaluate(base + ".gguf", sequences);
  ASSERT_TRUE(results.ok()) << results.status().to_string();
  const double std = reference["integer_kernels_vs_dequantised_f32"]["std"];
  const bool is_float = std::string(GetParam()).ends_with("F16");
  RmsDifference to_dequantised;
  RmsDifference to_integer;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Json& wanted = reference["cases"][i];
    const std::vector<float>& found = (*results)[i].logits_last;
    const std::vector<float> dequantised = wanted["logits_last_dequantised_f32"];
    const std::vector<float> integer = wanted["logits_last"];
    ASSERT_EQ(found.size(), dequantised.size());
    to_dequantised.add(found, dequantised);
    to_integer.add(found, integer);
  }
  RecordProperty("to_dequantised_in_std", std::to_string(to_dequantised.value() / std));
  RecordProperty("to_integer_in_std", std::to_string(to_integer.value() / std));
  EXPECT_LE(to_dequantised.value(), (is_float ? 0.001 : 0.05) * std);
  EXPECT_LE(to_integer.value(), 0.05 * std);
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, QuantisedModel,
                         testing::Values("llama-F16", "llama-Q4_0", "llama-Q4_K_M", "llama-Q5_1",
                                         "llama-Q8_0", "mixtral-Q4_0", "qwen3-256-F16",
                                         "qwen3-256-Q4_0", "qwen3-256-Q4_0_mix", "qwen3-256-Q4_K",
                                         "qwen3-256-Q4_K_M", "qwen3-256-Q5_1", "qwen3-256-Q6_K",
                                         "qwen3-256-Q8_0"),
                         test_name);

}  // namespace
}  // namespace strata::test
