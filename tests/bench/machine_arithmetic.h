// The arithmetic rows of machine_bench: int8 and F32 operations of each vector path, beside the
// clock and what clock and ports allow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace strata::bench {

struct ArithmeticOptions {
  std::vector<int64_t> cores;
  // Steps a cycle in the place of what the processor's family says; 0: the family's.
  double steps_per_cycle = 0;
};

// Registers a benchmark for each path that runs here and each number of cores. A rate that passes
// what clock and ports allow is an error of the benchmark; a sentence about it is added to
// `failures`.
void register_arithmetic(const ArithmeticOptions& options,
                         const std::shared_ptr<std::vector<std::string>>& failures);

}  // namespace strata::bench
