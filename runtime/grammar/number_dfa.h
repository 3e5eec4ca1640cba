// Which texts of JSON numbers lie in a range and are multiples of something: decided digit by
// digit, so that no number that is begun runs into a dead end.
#pragma once

#include <optional>

#include "runtime/base/status.h"
#include "runtime/grammar/char_dfa.h"
#include "runtime/grammar/decimal.h"

namespace strata::grammar {

struct NumberLimits {
  bool integer = false;
  std::optional<Decimal> low;
  std::optional<Decimal> high;
  bool low_excluded = false;
  bool high_excluded = false;
  std::optional<Decimal> multiple_of;  // above zero
  // How the number is written. Free: any JSON number, but an exponent only where it decides
  // nothing (without limits, or with limits of 0), and on an integer only if it is one without
  // looking ("5e3", not "1.5e1"); "1.0" is an integer. Else, for what a model writes: integers
  // without point and exponent, at most 15 digits before and after a point beyond those that the
  // limits have, exponents of two digits.
  bool free_spelling = false;
};

// Errors: INVALID_ARGUMENT if the automaton would be too large (a multiple of 123457).
Result<CharDfa> number_dfa(const NumberLimits& limits, Budget& budget);

}  // namespace strata::grammar
