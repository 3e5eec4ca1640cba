// Decimal numbers of any size, as a schema writes them: exact, so that a bound of 0.1 is 0.1.
//
// Threads: plain values.
#pragma once

#include <compare>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace strata::grammar {

struct Decimal {
  bool negative = false;    // never of zero
  std::string whole = "0";  // digits without leading zeros, "0" at least
  std::string fraction;     // digits without trailing zeros

  bool is_zero() const { return whole == "0" && fraction.empty(); }
  bool is_integer() const { return fraction.empty(); }
  std::string text() const;
};

// From a number as JSON writes it. Errors: INVALID_ARGUMENT for an exponent beyond 400.
Result<Decimal> parse_decimal(std::string_view text);

std::strong_ordering compare(const Decimal& a, const Decimal& b);

}  // namespace strata::grammar
