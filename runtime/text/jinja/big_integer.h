// Integers beyond 64 bits, as Python has them: what templates compute with ids and powers of two.
//
// Sign and magnitude, in base 2^32. Bounded: results over kBitsMax are refused by the callers in
// arithmetic.cpp, so the schoolbook algorithms here stay quick.
//
// Threads: values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace strata::jinja {

class BigInteger {
 public:
  // About the 4300 digits that Python converts to text at most.
  static constexpr size_t kBitsMax = 14284;

  BigInteger() = default;
  explicit BigInteger(int64_t value);
  // Decimal digits with an optional sign; none for anything else.
  static std::optional<BigInteger> parse(std::string_view text);
  // Requires: finite. The integer part.
  static BigInteger from_double(double value);

  bool is_zero() const { return limbs_.empty(); }
  bool is_negative() const { return negative_; }
  size_t bits() const;
  std::optional<int64_t> as_int64() const;
  // Nearest double, ties to even; infinite beyond its range.
  double to_double() const;
  std::string to_string() const { return to_string(10, false); }
  // Base 2, 8, 10 or 16.
  std::string to_string(uint32_t base, bool upper) const;

  BigInteger negated() const;
  friend BigInteger operator+(const BigInteger& a, const BigInteger& b);
  friend BigInteger operator-(const BigInteger& a, const BigInteger& b) { return a + b.negated(); }
  friend BigInteger operator*(const BigInteger& a, const BigInteger& b);
  // Quotient rounded down and the remainder with the divisor's sign. Requires: b not zero.
  static void divide(const BigInteger& a, const BigInteger& b, BigInteger& quotient,
                     BigInteger& remainder);
  std::strong_ordering operator<=>(const BigInteger& other) const;
  bool operator==(const BigInteger& other) const = default;

 private:
  static int compare_magnitudes(const BigInteger& a, const BigInteger& b);
  void trim();
  // Divides the magnitude, returns the rest.
  uint32_t divide_by_limb(uint32_t divisor);
  void shift_left_and_or(uint32_t bit);

  std::vector<uint32_t> limbs_;  // least significant first, no leading zeros
  bool negative_ = false;        // false for zero
};

}  // namespace strata::jinja
