// Numbers of the operating system: of the size that was asked for, and not twice the same.
#include "runtime/base/random.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/base/base_name.h"

namespace strata {
namespace {

TEST(Random, GivesWhatIsAskedForAndNotTwiceTheSame) {
  EXPECT_EQ(random_hex(0), "");
  std::set<std::string> texts;
  std::set<uint64_t> numbers;
  for (int i = 0; i < 100; ++i) {
    const std::string text = random_hex(16);
    EXPECT_EQ(text.size(), 32U);
    EXPECT_EQ(text.find_first_not_of("0123456789abcdef"), std::string::npos);
    texts.insert(text);
    numbers.insert(random_u64());
  }
  EXPECT_EQ(texts.size(), 100U);
  EXPECT_EQ(numbers.size(), 100U);
  // Larger than one call to the system gives.
  EXPECT_EQ(random_hex(1000).size(), 2000U);
}

TEST(BaseName, IsWhatFollowsTheLastSlash) {
  EXPECT_EQ(base_name("/models/a.gguf"), "a.gguf");
  EXPECT_EQ(base_name("a.gguf"), "a.gguf");
  EXPECT_EQ(base_name("folder/"), "");
  EXPECT_EQ(base_name(""), "");
}

}  // namespace
}  // namespace strata
