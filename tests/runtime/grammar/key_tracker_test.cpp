// Goal: a name twice in one object is seen at its end, however it is written, and nowhere else.
#include "runtime/grammar/key_tracker.h"

#include <gtest/gtest.h>

#include <string_view>

namespace strata::grammar {
namespace {

// The number of bytes taken.
size_t run(KeyTracker& tracker, std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!tracker.accept(static_cast<uint8_t>(text[i]))) return i;
  }
  return text.size();
}

bool takes(std::string_view text) {
  KeyTracker tracker;
  return run(tracker, text) == text.size();
}

TEST(KeyTracker, NamesByObject) {
  EXPECT_TRUE(takes(R"({"a":{"a":"a"},"b":["a","a",{"a":1}],"c":"a"})"));
  EXPECT_FALSE(takes(R"({"a":1,"a")"));
  EXPECT_FALSE(takes(R"({"a":[{}],"a")"));
  EXPECT_FALSE(takes(R"({"x":{"k":1,"k")"));
  EXPECT_TRUE(takes(R"({"a":"b\"c","b\"c":1,"{":2,"}":3})"));
}

TEST(KeyTracker, NamesByWhatTheySay) {
  EXPECT_FALSE(takes(R"({"a/b":1,"\u0061\/b")"));
  EXPECT_FALSE(takes(R"({"\ud83d\ude42":1,"🙂")"));
  EXPECT_FALSE(takes(R"({"\n\t":1,"\u000a\u0009")"));
  EXPECT_TRUE(takes(R"({"\\u0061":1,"a":2})"));
}

TEST(KeyTracker, ARefusalChangesNothingAndCopiesAreApart) {
  KeyTracker tracker;
  EXPECT_EQ(run(tracker, R"({"a":1,"a")"), 9U);
  EXPECT_EQ(run(tracker, R"(b":2)"), 4U) << "the name may still go on";
  KeyTracker copy = tracker;
  EXPECT_EQ(run(copy, R"(,"c":1)"), 6U);
  EXPECT_EQ(run(tracker, R"(,"c":1)"), 6U);
  EXPECT_EQ(run(copy, R"(,"ab")"), 4U);
}

}  // namespace
}  // namespace strata::grammar
