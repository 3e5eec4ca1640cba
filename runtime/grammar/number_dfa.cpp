#include "runtime/grammar/number_dfa.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace strata::grammar {
namespace {

constexpr uint8_t kDigitsAdded = 15;
constexpr uint32_t kDivisorMax = 100000;

enum class Phase : uint8_t { begin, minus, zero, whole, point, fraction, mark, sign, exponent };

// What of the digits read so far matters. The orders compare them with as many of a limit's.
struct Progress {
  Phase phase = Phase::begin;
  bool negative = false;
  int8_t to_low = 0;
  int8_t to_high = 0;
  uint16_t whole_digits = 0;     // one beyond the longest that matters stands for all
  uint16_t fraction_digits = 0;  // likewise
  uint16_t exponent_digits = 0;
  bool negative_exponent = false;
  uint32_t remainder = 0;
  auto operator<=>(const Progress&) const = default;
};

class NumberBuilder {
 public:
  NumberBuilder(const NumberLimits& limits, Budget& budget) : limits_(limits), budget_(budget) {}

  Result<CharDfa> build() {
    if (limits_.multiple_of) TRY(set_divisor(*limits_.multiple_of));
    const bool free = limits_.free_spelling;
    whole_max_ = std::max(digits_of(limits_.low, true), digits_of(limits_.high, true));
    fraction_max_ = std::max({digits_of(limits_.low, false), digits_of(limits_.high, false),
                              static_cast<size_t>(scale_)});
    if (!free) whole_max_ = std::max<size_t>(whole_max_, kDigitsAdded);
    const bool one_value = limits_.low && limits_.high && compare(*limits_.low, *limits_.high) == 0;
    if (!free && !one_value) fraction_max_ += kDigitsAdded;
    const auto sign_only = [](const std::optional<Decimal>& limit) {
      return !limit || limit->is_zero();
    };
    has_exponent_ = sign_only(limits_.low) && sign_only(limits_.high) && divisor_ == 0 &&
                    (!limits_.integer || free);
    return explore();
  }

 private:
  static size_t digits_of(const std::optional<Decimal>& limit, bool whole) {
    if (!limit) return 0;
    return whole ? limit->whole.size() : limit->fraction.size();
  }

  Status set_divisor(const Decimal& multiple) {
    const std::string digits = multiple.whole + multiple.fraction;
    scale_ = static_cast<uint32_t>(multiple.fraction.size());
    uint64_t value = 0;
    for (const char digit : digits) {
      value = value * 10 + static_cast<uint64_t>(digit - '0');
      if (value > kDivisorMax) {
        return invalid_argument(
            fmt::format("multipleOf {} has more digits than is supported", multiple.text()));
      }
    }
    divisor_ = static_cast<uint32_t>(value);
    return ok_status();
  }

  Result<CharDfa> explore() {
    std::vector<Progress> all(1);
    std::map<Progress, uint32_t> names = {{all[0], 0}};
    CharDfa dfa;
    for (size_t s = 0; s < all.size(); ++s) {
      const Progress at = all[s];
      CharDfa::State state;
      state.label = accepts(at) ? 1 : 0;
      for (const char letter : std::string_view("+-.0123456789Ee")) {
        Progress next = at;
        if (!step(next, letter)) continue;
        const auto [entry, is_new] = names.try_emplace(next, static_cast<uint32_t>(all.size()));
        if (is_new) all.push_back(next);
        const auto code = static_cast<uint32_t>(letter);
        state.edges.push_back({code, code, entry->second});
      }
      TRY(budget_.spend(20));
      dfa.states.push_back(std::move(state));
      if (all.size() > kDfaStatesMax * 4) {
        return invalid_argument("the number's limits need too large an automaton",
                                "use a smaller multipleOf, or limits with fewer digits");
      }
    }
    minimise(dfa);
    return dfa;
  }

  bool step(Progress& at, char letter) const {
    if (letter == '-' || letter == '+') return step_sign(at, letter);
    if (letter == '.') {
      const bool allowed = !limits_.integer || limits_.free_spelling;
      if (!allowed || (at.phase != Phase::zero && at.phase != Phase::whole)) return false;
      end_whole(at);
      at.phase = Phase::point;
      return true;
    }
    if (letter == 'e' || letter == 'E') return step_mark(at);
    return step_digit(at, static_cast<uint32_t>(letter - '0'));
  }

  static bool step_sign(Progress& at, char letter) {
    if (at.phase == Phase::mark) {
      at.phase = Phase::sign;
      at.negative_exponent = letter == '-';
      return true;
    }
    if (at.phase != Phase::begin || letter != '-') return false;
    at.phase = Phase::minus;
    at.negative = true;
    return true;
  }

  bool step_mark(Progress& at) const {
    const bool after_whole = at.phase == Phase::zero || at.phase == Phase::whole;
    if (!has_exponent_ || !(after_whole || (at.phase == Phase::fraction && !limits_.integer))) {
      return false;
    }
    if (after_whole) end_whole(at);
    at.phase = Phase::mark;
    return true;
  }

  bool step_digit(Progress& at, uint32_t digit) const {
    switch (at.phase) {
      case Phase::begin:
      case Phase::minus:
      case Phase::whole:
        if (at.phase == Phase::whole && !limits_.free_spelling && at.whole_digits >= whole_max_) {
          return false;
        }
        compare_digit(at.to_low, limits_.low, true, at.whole_digits, digit);
        compare_digit(at.to_high, limits_.high, true, at.whole_digits, digit);
        at.whole_digits =
            static_cast<uint16_t>(std::min<size_t>(at.whole_digits + 1U, whole_max_ + 1));
        at.phase = at.phase != Phase::whole && digit == 0 ? Phase::zero : Phase::whole;
        add_to_remainder(at, digit);
        return true;
      case Phase::point:
      case Phase::fraction:
        return step_fraction(at, digit);
      case Phase::mark:
      case Phase::sign:
      case Phase::exponent:
        // A negative exponent may make a fraction of an integer.
        if (limits_.integer && at.negative_exponent) return false;
        if (!limits_.free_spelling && at.exponent_digits == 2) return false;
        if (!limits_.free_spelling) ++at.exponent_digits;
        at.phase = Phase::exponent;
        return true;
      default:
        return false;
    }
  }

  bool step_fraction(Progress& at, uint32_t digit) const {
    if (limits_.integer && digit != 0) return false;
    if (!limits_.free_spelling && at.fraction_digits >= fraction_max_) return false;
    compare_digit(at.to_low, limits_.low, false, at.fraction_digits, digit);
    compare_digit(at.to_high, limits_.high, false, at.fraction_digits, digit);
    if (divisor_ != 0) {
      if (at.fraction_digits >= scale_ && digit != 0) return false;
      if (at.fraction_digits < scale_) add_to_remainder(at, digit);
    }
    at.fraction_digits =
        static_cast<uint16_t>(std::min<size_t>(at.fraction_digits + 1U, fraction_max_ + 1));
    at.phase = Phase::fraction;
    return true;
  }

  void add_to_remainder(Progress& at, uint32_t digit) const {
    if (divisor_ != 0) at.remainder = (at.remainder * 10 + digit) % divisor_;
  }

  // The next digit against the limit's at the same place; beyond its end these are zeros (a longer
  // whole part is looked at by end_whole()).
  static void compare_digit(int8_t& order, const std::optional<Decimal>& limit, bool whole,
                            size_t place, uint32_t digit) {
    if (!limit || order != 0) return;
    const std::string& digits = whole ? limit->whole : limit->fraction;
    if (whole && place >= digits.size()) return;
    const auto other = static_cast<uint32_t>(place < digits.size() ? digits[place] - '0' : 0);
    if (digit != other) order = digit < other ? -1 : 1;
  }

  // With the point, the number of digits before it decides first.
  void end_whole(Progress& at) const {
    for (const auto& [order, limit] :
         {std::pair{&at.to_low, &limits_.low}, {&at.to_high, &limits_.high}}) {
      if (!*limit) continue;
      const size_t digits = (*limit)->whole.size();
      if (at.whole_digits != digits) *order = at.whole_digits < digits ? -1 : 1;
    }
    at.whole_digits = 0;
  }

  bool accepts(Progress at) const {
    const bool after_whole = at.phase == Phase::zero || at.phase == Phase::whole;
    if (!after_whole && at.phase != Phase::fraction && at.phase != Phase::exponent) return false;
    if (after_whole) end_whole(at);
    if (!in_range(at)) return false;
    if (divisor_ == 0) return true;
    uint64_t remainder = at.remainder;
    for (uint32_t i = std::min<uint32_t>(at.fraction_digits, scale_); i < scale_; ++i) {
      remainder = remainder * 10 % divisor_;
    }
    return remainder == 0;
  }

  bool in_range(const Progress& at) const {
    // Equal digits so far, and more of the limit's: the number is the smaller one in magnitude.
    const auto order_to = [&at](const Decimal& limit, int8_t order) {
      if (order == 0 && at.fraction_digits < limit.fraction.size()) order = -1;
      if (at.negative != limit.negative) {
        const bool both_zero = order == 0 && limit.is_zero();
        return both_zero ? 0 : (at.negative ? -1 : 1);
      }
      return at.negative ? -order : int{order};
    };
    if (limits_.low) {
      const int order = order_to(*limits_.low, at.to_low);
      if (order < 0 || (order == 0 && limits_.low_excluded)) return false;
    }
    if (limits_.high) {
      const int order = order_to(*limits_.high, at.to_high);
      if (order > 0 || (order == 0 && limits_.high_excluded)) return false;
    }
    return true;
  }

  const NumberLimits& limits_;
  Budget& budget_;
  uint32_t divisor_ = 0;  // of the number times 10^scale_; 0: none
  uint32_t scale_ = 0;
  size_t whole_max_ = 0;
  size_t fraction_max_ = 0;
  bool has_exponent_ = false;
};

}  // namespace

Result<CharDfa> number_dfa(const NumberLimits& limits, Budget& budget) {
  return NumberBuilder(limits, budget).build();
}

}  // namespace strata::grammar
