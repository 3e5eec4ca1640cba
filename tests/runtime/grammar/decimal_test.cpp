// Goal: decimal numbers of schemas are exact and ordered.
#include "runtime/grammar/decimal.h"

#include <gtest/gtest.h>

namespace strata::grammar {
namespace {

std::string text_of(std::string_view number) { return parse_decimal(number)->text(); }

TEST(Decimal, OneTextForOneValue) {
  EXPECT_EQ(text_of("0"), "0");
  EXPECT_EQ(text_of("-0.00"), "0");
  EXPECT_EQ(text_of("1.50"), "1.5");
  EXPECT_EQ(text_of("-12e2"), "-1200");
  EXPECT_EQ(text_of("12.345E-3"), "0.012345");
  EXPECT_EQ(text_of("1.8446744073709552e+19"), "18446744073709552000");
  EXPECT_EQ(text_of("0.001e3"), "1");
  EXPECT_FALSE(parse_decimal("1e401").ok());
}

TEST(Decimal, OrderIsByValue) {
  const std::vector<std::string> ascending = {"-10", "-9.5", "-0.1", "0",  "0.09",
                                              "0.1", "1",    "9",    "10", "1e2"};
  for (size_t i = 0; i < ascending.size(); ++i) {
    for (size_t j = 0; j < ascending.size(); ++j) {
      EXPECT_EQ(compare(*parse_decimal(ascending[i]), *parse_decimal(ascending[j])), i <=> j);
    }
  }
}

}  // namespace
}  // namespace strata::grammar
