// BenchRun: a measured batch of requests on any engine.
//
// Threads: the caller's; listeners run on the engine's thread.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>

#include "coordinator/engine/engine_loop.h"
#include "runtime/base/status.h"

namespace strata::serve {

struct BenchLoad {
  uint32_t depth = 0;  // prompt tokens before those that are measured
  uint32_t prompt_tokens = 512;
  uint32_t new_tokens = 64;
  uint32_t sequences = 1;
  int32_t vocab_size = 0;
};

struct BenchTimes {
  // To a sequence's first token, mean over the sequences: from submit, or with a depth from the end
  // of the step that ended there. Nothing for several sequences behind a depth, whose steps mix
  // what counts with what does not.
  std::optional<double> mean_first_ms;
  // Of all sequences, until the last one's first token. With a depth as above.
  std::optional<double> prefill_tokens_per_s;
  // Of all sequences while all decode; nothing if there is no such time (one new token, or the
  // first sequences end before the last begin).
  std::optional<double> decode_tokens_per_s;
};

// Sends the requests at once, greedy and without end tokens, and waits for all. Errors: the first
// request's that failed; CANCELLED once told to stop.
Result<BenchTimes> run_bench(coordinator::EngineLoop& engine, const BenchLoad& load,
                             const std::stop_token& stop);

// The context that measure_hop_us() needs.
inline constexpr uint32_t kHopContext = 50;

// What a token takes beside computing, in microseconds for each of `stages` stages: the time from
// token to token of one sequence, less what the stages say they computed on its steps. The median
// of a few runs. Errors: as run_bench().
Result<double> measure_hop_us(coordinator::EngineLoop& engine, uint32_t stages, int32_t vocab_size,
                              const std::stop_token& stop);

}  // namespace strata::serve
