#include "runtime/grammar/decimal.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"

namespace strata::grammar {
namespace {

constexpr int kExponentMax = 400;
constexpr size_t kDigitsMax = 1000;

// Of numbers without a sign.
std::strong_ordering compare_magnitude(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() <=> b.whole.size();
  if (const int order = a.whole.compare(b.whole); order != 0) return order <=> 0;
  return a.fraction.compare(b.fraction) <=> 0;
}

}  // namespace

std::string Decimal::text() const {
  return (negative ? "-" : "") + whole + (fraction.empty() ? "" : "." + fraction);
}

Result<Decimal> parse_decimal(std::string_view text) {
  Decimal result;
  size_t at = 0;
  result.negative = text.starts_with('-');
  if (result.negative) ++at;
  const size_t mark = std::min(text.find_first_of("eE"), text.size());
  const size_t point = std::min(text.find('.'), mark);
  std::string digits(text.substr(at, point - at));
  if (point < mark) digits += text.substr(point + 1, mark - point - 1);
  int exponent = 0;
  for (size_t i = mark + 1; i < text.size(); ++i) {
    if (text[i] >= '0' && text[i] <= '9')
      exponent = std::min(exponent * 10 + (text[i] - '0'), 9999);
  }
  if (exponent > kExponentMax || digits.size() > kDigitsMax) {
    return invalid_argument(
        fmt::format("the number {} is too long or too large", printable(text, 40)));
  }
  if (mark + 1 < text.size() && text[mark + 1] == '-') exponent = -exponent;
  // Where the point comes to stand among the digits.
  int whole_digits = static_cast<int>(point - at) + exponent;
  if (whole_digits < 0) {
    digits.insert(0, static_cast<size_t>(-whole_digits), '0');
    whole_digits = 0;
  }
  if (static_cast<size_t>(whole_digits) > digits.size()) {
    digits.append(static_cast<size_t>(whole_digits) - digits.size(), '0');
  }
  result.whole = digits.substr(0, static_cast<size_t>(whole_digits));
  result.fraction = digits.substr(static_cast<size_t>(whole_digits));
  result.whole.erase(0, std::min(result.whole.find_first_not_of('0'), result.whole.size()));
  if (result.whole.empty()) result.whole = "0";
  result.fraction.erase(result.fraction.find_last_not_of('0') + 1);
  if (result.is_zero()) result.negative = false;
  return result;
}

std::strong_ordering compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) {
    return a.negative ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return a.negative ? compare_magnitude(b, a) : compare_magnitude(a, b);
}

}  // namespace strata::grammar
