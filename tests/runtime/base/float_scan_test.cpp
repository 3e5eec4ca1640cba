// Passes over rows of floats: every position and length around the width of vectors, and what is
// equal.
#include "runtime/base/float_scan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace strata {
namespace {

TEST(FloatScan, FindsWhatIsNotFiniteAnywhere) {
  for (const size_t n : {1, 15, 16, 17, 63, 1000}) {
    std::vector<float> values(n, std::numeric_limits<float>::max());
    values[n / 2] = std::numeric_limits<float>::denorm_min();
    EXPECT_TRUE(all_finite(values)) << n;
    for (size_t i = 0; i < n; ++i) {
      for (const float bad : {NAN, INFINITY, -INFINITY, -NAN}) {
        const float kept = values[i];
        values[i] = bad;
        EXPECT_FALSE(all_finite(values)) << n << " " << i << " " << bad;
        values[i] = kept;
      }
    }
  }
  EXPECT_TRUE(all_finite({}));
}

TEST(FloatScan, TheFirstOfTheLargestWins) {
  for (const size_t n : {1, 2, 15, 16, 17, 33, 1000}) {
    for (size_t i = 0; i < n; ++i) {
      std::vector<float> values(n, -3.5f);
      values[i] = -1.0f;
      values[n - 1] = -1.0f;  // an equal one behind it
      EXPECT_EQ(index_of_largest(values), i) << n;
    }
    EXPECT_EQ(index_of_largest(std::vector<float>(n, -7.0f)), 0u) << n;
  }
  EXPECT_EQ(index_of_largest(std::vector<float>{-0.0f, 0.0f}), 0u);
}

}  // namespace
}  // namespace strata
