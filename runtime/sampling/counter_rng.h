// Random numbers as a pure function of (seed, position, choice, draw): Philox4x32-10.
//
// There is no state to save, send or lose: the tail of a pipeline, a replacement for it after a
// failure, and a replay of the request all draw the same number for the same token.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

// Ten Philox rounds over a 128-bit counter with a 64-bit key, words from low to high.
std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Where in a request a number is drawn.
struct RngPoint {
  uint64_t seed;
  uint32_t position;  // of the new token in its sequence
  uint32_t choice;    // which of a request's parallel answers
  uint32_t draw;      // numbers drawn before for the same token
};

// In [0, 1): the top 24 bits of the first word over 2^24. Threads: any.
double uniform_at(const RngPoint& point);

}  // namespace strata
