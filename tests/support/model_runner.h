// Runs models in tests: logits of token lists, greedy text and hidden states, over any local
// pipeline. Stands on the CPU backend; strata::model_test_support.
//
// Threads: any; each call makes its own pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/dtype.h"
#include "serve/evaluator.h"
#include "worker/local_pipeline.h"

namespace strata::test {

using Sequences = std::vector<std::vector<int32_t>>;

// How a model is run. None of it may change a bit of the logits but kv_type.
struct RunSetup {
  std::vector<int32_t> split;  // layers per stage; empty: one stage
  uint32_t chunk = 128;
  uint32_t batch = 1;
  int threads = 2;
  std::string isa;
  DType kv_type = DType::f32;
  bool mapped = false;
  // As serve::EvaluatorOptions::on_logits.
  std::function<void(size_t sequence, size_t position, std::span<const float> logits)> on_logits =
      {};
};

// Logits of all positions, as `strata eval` gives them.
Result<std::vector<serve::SequenceResult>> evaluate(const std::string& model_path,
                                                    const Sequences& sequences,
                                                    const RunSetup& setup = {});
// The digests alone.
Result<std::vector<std::string>> logits_digests(const std::string& model_path,
                                                const Sequences& sequences,
                                                const RunSetup& setup = {});

// `count` greedy tokens after the prompt, over sampling steps that are sent ahead of the tokens.
Result<std::vector<int32_t>> generate_greedy(const std::string& model_path,
                                             const std::vector<int32_t>& prompt, uint32_t count,
                                             const RunSetup& setup = {});

// The residual stream {n_embd} at the last token after each layer.
Result<std::vector<std::vector<float>>> layer_outputs(const std::string& model_path,
                                                      const std::vector<int32_t>& tokens);

}  // namespace strata::test
