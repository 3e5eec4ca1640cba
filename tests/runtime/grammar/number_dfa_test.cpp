// Goal: numbers in ranges and multiples, digit by digit. Method: every number of a grid of short
// ones against arithmetic on integers.
#include "runtime/grammar/number_dfa.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace strata::grammar {
namespace {

CharDfa dfa(const NumberLimits& limits) {
  Budget budget;
  return number_dfa(limits, budget).value();
}

NumberLimits range(std::optional<std::string> low, std::optional<std::string> high) {
  NumberLimits limits;
  if (low) limits.low = *parse_decimal(*low);
  if (high) limits.high = *parse_decimal(*high);
  return limits;
}

TEST(NumberDfa, IntegersInRanges) {
  for (const auto& [low, high] :
       {std::pair{-5, 120}, {0, 0}, {-120, -5}, {7, 1000}, {-1, 1}, {99, 101}, {-1000, 999}}) {
    for (const int step : {0, 1, 3, 12}) {
      NumberLimits limits = range(fmt::format("{}", low), fmt::format("{}", high));
      limits.integer = true;
      if (step > 0) limits.multiple_of = *parse_decimal(fmt::format("{}", step));
      const CharDfa automaton = dfa(limits);
      for (int value = -1100; value <= 1100; ++value) {
        const bool fits = value >= low && value <= high && (step == 0 || value % step == 0);
        EXPECT_EQ(automaton.match(fmt::format("{}", value)) != 0, fits)
            << value << " in " << low << ".." << high << " by " << step;
      }
      EXPECT_EQ(automaton.match("01"), 0U);
      EXPECT_EQ(automaton.match("1.5"), 0U);
      EXPECT_EQ(automaton.match("-"), 0U);
    }
  }
}

TEST(NumberDfa, FractionsInRanges) {
  for (const bool excluded : {false, true}) {
    NumberLimits limits = range("-1.25", "2.5");
    limits.low_excluded = limits.high_excluded = excluded;
    const CharDfa automaton = dfa(limits);
    for (int hundredths = -400; hundredths <= 400; ++hundredths) {
      const std::string text = fmt::format("{:.2f}", hundredths / 100.0);
      const bool fits = excluded ? hundredths > -125 && hundredths < 250
                                 : hundredths >= -125 && hundredths <= 250;
      EXPECT_EQ(automaton.match(text) != 0, fits) << text;
    }
    EXPECT_EQ(automaton.match("2.50001"), 0U);
    EXPECT_NE(automaton.match("2.49999"), 0U);
    EXPECT_EQ(automaton.match("-0.0"), 1U);
    EXPECT_EQ(automaton.match("1e0"), 0U) << "an exponent would have to be computed";
  }
}

TEST(NumberDfa, MultiplesOfFractions) {
  NumberLimits limits;
  limits.multiple_of = *parse_decimal("0.25");
  const CharDfa automaton = dfa(limits);
  for (int hundredths = -300; hundredths <= 300; ++hundredths) {
    const std::string text = fmt::format("{:.2f}", hundredths / 100.0);
    EXPECT_EQ(automaton.match(text) != 0, hundredths % 25 == 0) << text;
  }
  EXPECT_NE(automaton.match("7"), 0U);
  EXPECT_NE(automaton.match("7.5"), 0U);
  EXPECT_NE(automaton.match("7.500"), 0U);
  EXPECT_EQ(automaton.match("7.501"), 0U);
}

TEST(NumberDfa, ExponentsWhereTheyDecideNothing) {
  NumberLimits limits = range("0", std::nullopt);
  limits.free_spelling = true;
  EXPECT_NE(dfa(limits).match("1.5e-300"), 0U);
  EXPECT_EQ(dfa(limits).match("-1e5"), 0U);
  limits.low_excluded = true;
  EXPECT_EQ(dfa(limits).match("0.0e5"), 0U);
  limits.integer = true;
  EXPECT_NE(dfa(limits).match("5e3"), 0U);
  EXPECT_NE(dfa(limits).match("5.0"), 0U);
  EXPECT_EQ(dfa(limits).match("5e-3"), 0U);
}

TEST(NumberDfa, TooLargeAnAutomatonIsAnError) {
  Budget budget;
  NumberLimits limits;
  limits.multiple_of = *parse_decimal("1234567");
  EXPECT_FALSE(number_dfa(limits, budget).ok());
}

}  // namespace
}  // namespace strata::grammar
