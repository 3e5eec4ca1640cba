#include "runtime/text/jinja/big_integer.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace strata::jinja {

BigInteger::BigInteger(int64_t value) : negative_(value < 0) {
  auto magnitude = static_cast<uint64_t>(value);
  if (value < 0) magnitude = 0 - magnitude;
  for (; magnitude != 0; magnitude >>= 32) limbs_.push_back(static_cast<uint32_t>(magnitude));
}

std::optional<BigInteger> BigInteger::parse(std::string_view text) {
  BigInteger result;
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    uint64_t carry = static_cast<uint64_t>(c - '0');
    for (uint32_t& limb : result.limbs_) {
      carry += uint64_t{limb} * 10;
      limb = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
    if (carry != 0) result.limbs_.push_back(static_cast<uint32_t>(carry));
  }
  result.negative_ = negative && !result.limbs_.empty();
  return result;
}

BigInteger BigInteger::from_double(double value) {
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(value), &exponent);  // [0.5, 1)
  if (exponent <= 0) return {};
  BigInteger result(static_cast<int64_t>(std::ldexp(fraction, std::min(exponent, 53))));
  for (int i = 53; i < exponent; ++i) result.shift_left_and_or(0);
  result.negative_ = value < 0 && !result.is_zero();
  return result;
}

size_t BigInteger::bits() const {
  if (limbs_.empty()) return 0;
  return limbs_.size() * 32 - static_cast<size_t>(std::countl_zero(limbs_.back()));
}

std::optional<int64_t> BigInteger::as_int64() const {
  if (bits() > 64) return std::nullopt;
  uint64_t magnitude = 0;
  for (size_t i = limbs_.size(); i-- > 0;) magnitude = (magnitude << 32) | limbs_[i];
  const uint64_t limit = uint64_t{1} << 63;
  if (magnitude > limit || (magnitude == limit && !negative_)) return std::nullopt;
  return static_cast<int64_t>(negative_ ? 0 - magnitude : magnitude);
}

double BigInteger::to_double() const {
  const size_t count = bits();
  if (count == 0) return 0;
  if (count > 1024) return negative_ ? -HUGE_VAL : HUGE_VAL;
  const auto bit_at = [this](size_t i) { return (limbs_[i / 32] >> (i % 32)) & 1u; };
  // The top 54 bits, and whether anything stands below them.
  uint64_t top = 0;
  const size_t kept = std::min<size_t>(count, 54);
  for (size_t i = 0; i < kept; ++i) top = (top << 1) | bit_at(count - 1 - i);
  bool rest = false;
  for (size_t i = 0; i + kept < count && !rest; ++i) rest = bit_at(i) != 0;
  if (kept == 54) {
    const bool half = (top & 1) != 0;
    top >>= 1;
    if (half && (rest || (top & 1) != 0)) ++top;
  }
  const double value =
      std::ldexp(static_cast<double>(top),
                 static_cast<int>(count) - static_cast<int>(std::min<size_t>(count, 53)));
  return negative_ ? -value : value;
}

std::string BigInteger::to_string(uint32_t base, bool upper) const {
  if (limbs_.empty()) return "0";
  const char* digits = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  BigInteger rest = *this;
  std::string text;
  while (!rest.limbs_.empty()) text += digits[rest.divide_by_limb(base)];
  if (negative_) text += '-';
  std::reverse(text.begin(), text.end());
  return text;
}

BigInteger BigInteger::negated() const {
  BigInteger result = *this;
  result.negative_ = !negative_ && !is_zero();
  return result;
}

int BigInteger::compare_magnitudes(const BigInteger& a, const BigInteger& b) {
  if (a.limbs_.size() != b.limbs_.size()) return a.limbs_.size() < b.limbs_.size() ? -1 : 1;
  for (size_t i = a.limbs_.size(); i-- > 0;) {
    if (a.limbs_[i] != b.limbs_[i]) return a.limbs_[i] < b.limbs_[i] ? -1 : 1;
  }
  return 0;
}

void BigInteger::trim() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
  if (limbs_.empty()) negative_ = false;
}

uint32_t BigInteger::divide_by_limb(uint32_t divisor) {
  uint64_t rest = 0;
  for (size_t i = limbs_.size(); i-- > 0;) {
    rest = (rest << 32) | limbs_[i];
    limbs_[i] = static_cast<uint32_t>(rest / divisor);
    rest %= divisor;
  }
  trim();
  return static_cast<uint32_t>(rest);
}

void BigInteger::shift_left_and_or(uint32_t bit) {
  for (uint32_t& limb : limbs_) {
    const uint32_t out = limb >> 31;
    limb = (limb << 1) | bit;
    bit = out;
  }
  if (bit != 0) limbs_.push_back(bit);
}

BigInteger operator+(const BigInteger& a, const BigInteger& b) {
  BigInteger result;
  if (a.negative_ == b.negative_) {
    uint64_t carry = 0;
    for (size_t i = 0; i < std::max(a.limbs_.size(), b.limbs_.size()) || carry != 0; ++i) {
      if (i < a.limbs_.size()) carry += a.limbs_[i];
      if (i < b.limbs_.size()) carry += b.limbs_[i];
      result.limbs_.push_back(static_cast<uint32_t>(carry));
      carry >>= 32;
    }
    result.negative_ = a.negative_;
    return result;
  }
  const bool a_larger = BigInteger::compare_magnitudes(a, b) >= 0;
  const BigInteger& large = a_larger ? a : b;
  const BigInteger& small = a_larger ? b : a;
  int64_t borrow = 0;
  for (size_t i = 0; i < large.limbs_.size(); ++i) {
    int64_t limb = int64_t{large.limbs_[i]} + borrow;
    if (i < small.limbs_.size()) limb -= small.limbs_[i];
    borrow = limb < 0 ? -1 : 0;
    result.limbs_.push_back(static_cast<uint32_t>(limb));
  }
  result.negative_ = large.negative_;
  result.trim();
  return result;
}

BigInteger operator*(const BigInteger& a, const BigInteger& b) {
  BigInteger result;
  result.limbs_.resize(a.limbs_.size() + b.limbs_.size());
  for (size_t i = 0; i < a.limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < b.limbs_.size() || carry != 0; ++j) {
      carry += result.limbs_[i + j];
      if (j < b.limbs_.size()) carry += uint64_t{a.limbs_[i]} * b.limbs_[j];
      result.limbs_[i + j] = static_cast<uint32_t>(carry);
      carry >>= 32;
    }
  }
  result.negative_ = a.negative_ != b.negative_;
  result.trim();
  return result;
}

void BigInteger::divide(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                        BigInteger& remainder) {
  // Bit by bit: numbers here have at most kBitsMax bits.
  BigInteger divisor = b;
  divisor.negative_ = false;
  BigInteger whole;
  BigInteger rest;
  whole.limbs_.resize(a.limbs_.size());
  for (size_t i = a.bits(); i-- > 0;) {
    rest.shift_left_and_or((a.limbs_[i / 32] >> (i % 32)) & 1u);
    if (compare_magnitudes(rest, divisor) >= 0) {
      rest = rest - divisor;
      whole.limbs_[i / 32] |= 1u << (i % 32);
    }
  }
  whole.trim();
  whole.negative_ = a.negative_ != b.negative_ && !whole.is_zero();
  rest.negative_ = a.negative_ && !rest.is_zero();
  if (!rest.is_zero() && a.negative_ != b.negative_) {
    whole = whole - BigInteger(1);
    rest = rest + b;
  }
  quotient = std::move(whole);
  remainder = std::move(rest);
}

std::strong_ordering BigInteger::operator<=>(const BigInteger& other) const {
  if (negative_ != other.negative_) {
    return negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  const int order = compare_magnitudes(*this, other);
  return (negative_ ? -order : order) <=> 0;
}

}  // namespace strata::jinja
