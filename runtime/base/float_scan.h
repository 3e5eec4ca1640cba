// Passes over long rows of floats that compilers turn into vector code.
#pragma once

#include <cstddef>
#include <span>

namespace strata {

// No NaN and no infinity among `values`.
bool all_finite(std::span<const float> values);

// Index of the largest, the first of equals. Requires: not empty, all finite.
size_t index_of_largest(std::span<const float> values);

}  // namespace strata
