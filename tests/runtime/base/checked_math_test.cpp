// Goal: arithmetic on untrusted sizes never wraps silently. Method: values at the type's limits.
#include "runtime/base/checked_math.h"

#include <gtest/gtest.h>

#include <limits>

namespace strata {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(CheckedMath, SumsAndProductsThatWrapAreEmpty) {
  EXPECT_EQ(checked_add<uint64_t>(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_add<uint64_t>(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_sub<uint64_t>(1, 2), std::nullopt);
  EXPECT_EQ(checked_product<uint64_t>({4, (1u << 30) - 1, (1u << 30) + 1, 4}), kMax - 15);
  EXPECT_EQ(checked_product<uint64_t>({4, (1u << 30), (1u << 30), 4}), std::nullopt);
  EXPECT_EQ(checked_product<uint64_t>({2, 3, 5}), 30u);
}

TEST(CheckedMath, AlignUpNearTheEndIsEmpty) {
  EXPECT_EQ(checked_align_up(kMax - 15, 32), std::nullopt);
  EXPECT_EQ(checked_align_up(33, 32), 64u);
  EXPECT_EQ(checked_align_up(64, 32), 64u);
}

TEST(CheckedMath, RangesAreComparedWithoutASum) {
  EXPECT_TRUE(range_fits(10, 5, 15));
  EXPECT_FALSE(range_fits(10, 6, 15));
  EXPECT_FALSE(range_fits(10, kMax, 15));
  EXPECT_FALSE(range_fits(16, 0, 15));
}

}  // namespace
}  // namespace strata
