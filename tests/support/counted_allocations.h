// How often a path of the program allocates: counts every operator new of the process, which it
// replaces. So each test that asks is a binary of its own, made one by strata_count_allocations()
// of cmake/strata_target.cmake. What libraries take from malloc is not counted.
//
// Threads: any; of several at once, all allocations count.
#pragma once

#include <cstdint>

namespace strata::testing {

// Since the process began.
uint64_t allocation_count();

// Those of `run()`.
template <typename Run>
uint64_t allocations_of(const Run& run) {
  const uint64_t before = allocation_count();
  run();
  return allocation_count() - before;
}

}  // namespace strata::testing
