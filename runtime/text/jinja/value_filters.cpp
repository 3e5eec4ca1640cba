// Filters over numbers and over values of any type.
#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>

#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/arguments.h"
#include "runtime/text/jinja/arithmetic.h"
#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/filters.h"
#include "runtime/text/jinja/text_operations.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

// Text without white space around it and without single underscores between digits; empty if an
// underscore stands elsewhere.
std::string plain_number(Runtime& runtime, const Text& text) {
  const auto stripped = strip(runtime, text, nullptr, true, true);
  if (!stripped.ok()) return {};
  const std::string& digits = stripped.value().bytes();
  std::string plain;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (digits[i] != '_') {
      plain += digits[i];
      continue;
    }
    const auto is_digit_at = [&](size_t at) {
      return at < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[at])) != 0;
    };
    if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return {};
  }
  return plain;
}

// Python's float(text).
std::optional<double> real_of(Runtime& runtime, const Text& text) {
  const std::string plain = plain_number(runtime, text);
  if (plain.empty() || plain.find_first_of("xXpP(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(plain.c_str(), &end);
  if (end != plain.c_str() + plain.size()) return std::nullopt;
  return value;
}

// Python's int(text, base).
std::optional<BigInteger> integer_of(Runtime& runtime, const Text& text, int64_t base) {
  std::string digits = plain_number(runtime, text);
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.erase(0, 1);
  if (digits.size() > 4300) return std::nullopt;
  if (digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    const int64_t named = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (named != 0 && (base == named || base == 0)) {
      base = named;
      digits.erase(0, 2);
    }
  }
  if (base == 0) base = 10;
  if (digits.empty() || base < 2 || base > 36) return std::nullopt;
  BigInteger value;
  for (const char c : digits) {
    const int64_t digit = c >= '0' && c <= '9'                     ? c - '0'
                          : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                                   : 99;
    if (digit >= base) return std::nullopt;
    value = value * BigInteger(base) + BigInteger(digit);
  }
  return negative ? value.negated() : value;
}

Result<Value> int_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"int", {"default", "base"}}));
  const Value fallback = bound.has(0) ? bound[0] : Value(int64_t{0});
  const int64_t base = TRY(integer_argument(runtime, bound, 1, 10, "base"));
  if (input.is_undefined()) return runtime.error(input.undefined());
  if (input.is_integer()) return Value::of(input.big());
  if (input.is_number()) {
    if (std::isfinite(input.real())) return Value::of(BigInteger::from_double(input.real()));
    if (std::isnan(input.real())) return fallback;
    return runtime.error("cannot convert float infinity to integer");
  }
  if (!input.is_string()) return fallback;
  TRY(runtime.charge_bytes(input.bytes().size() * 64));
  if (auto integer = integer_of(runtime, *input.text(), base)) return Value::of(*integer);
  const std::optional<double> real = real_of(runtime, *input.text());
  if (real && std::isfinite(*real)) return Value::of(BigInteger::from_double(*real));
  return fallback;
}

Result<Value> float_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"float", {"default"}}));
  if (input.is_undefined()) return runtime.error(input.undefined());
  if (input.is_number()) return Value(input.real());
  if (input.is_string()) {
    if (const std::optional<double> real = real_of(runtime, *input.text())) return Value(*real);
  }
  return bound.has(0) ? bound[0] : Value(0.0);
}

Result<Value> abs_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  TRY(bind(runtime, arguments, {"abs", {}}));
  if (input.is_undefined()) return runtime.error(input.undefined());
  if (input.is_integer()) {
    const BigInteger value = input.big();
    return Value::of(value.is_negative() ? value.negated() : value);
  }
  if (input.is_number()) return Value(std::fabs(input.real()));
  return runtime.error(fmt::format("bad operand type for abs(): '{}'", input.type_name()));
}

// round() of an integer to tens, hundreds ...: to even at ties.
Result<Value> round_integer(Runtime& runtime, const Value& input, int64_t precision) {
  if (precision >= 0) return Value::of(input.big());
  if (precision < -4000) return Value(int64_t{0});
  const Value unit = TRY(arithmetic(runtime, Operation::power, int64_t{10}, -precision));
  BigInteger quotient;
  BigInteger rest;
  BigInteger::divide(input.big(), unit.big(), quotient, rest);
  const auto order = rest * BigInteger(2) <=> unit.big();
  BigInteger half;
  BigInteger parity;
  BigInteger::divide(quotient, BigInteger(2), half, parity);
  if (order > 0 || (order == 0 && !parity.is_zero())) quotient = quotient + BigInteger(1);
  return Value::of(quotient * unit.big());
}

Result<Value> round_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"round", {"precision", "method"}}));
  const int64_t precision = TRY(integer_argument(runtime, bound, 0, 0, "precision"));
  const Text* method = TRY(text_argument(runtime, bound, 1, "method"));
  const std::string way = method != nullptr ? method->bytes : "common";
  if (way != "common" && way != "ceil" && way != "floor") {
    return runtime.error("method must be common, ceil or floor");
  }
  if (input.is_undefined()) return runtime.error(input.undefined());
  if (!input.is_number()) {
    return runtime.error(fmt::format("type {} doesn't define __round__ method", input.type_name()));
  }
  if (way == "common") {
    if (input.is_integer()) return round_integer(runtime, input, precision);
    return Value(round_to(input.real(), precision));
  }
  if (std::abs(precision) > 300) return runtime.error("the precision is too large");
  const Value unit = TRY(arithmetic(runtime, Operation::power, int64_t{10}, precision));
  const Value scaled = TRY(arithmetic(runtime, Operation::multiply, input, unit));
  if (scaled.is_integer()) return arithmetic(runtime, Operation::divide, scaled, unit);
  const double whole = way == "ceil" ? std::ceil(scaled.real()) : std::floor(scaled.real());
  if (!std::isfinite(whole)) return runtime.error("cannot convert a float that is not finite");
  return arithmetic(runtime, Operation::divide, Value::of(BigInteger::from_double(whole)), unit);
}

Result<Value> default_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"default", {"default_value", "boolean"}}));
  const bool replaces =
      input.is_undefined() || (truth_argument(bound, 1, false) && !is_truthy(input));
  if (!replaces) return input;
  return bound.has(0) ? bound[0] : TRY(runtime.text(std::string()));
}

Result<Value> attr_filter(Runtime& runtime, const Value& input, CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"attr", {"name"}, 1}));
  const Text* name = TRY(text_argument(runtime, bound, 0, "name"));
  if (name == nullptr) return runtime.error("attribute name must be string");
  if (input.is_undefined()) return runtime.error(input.undefined());
  return get_attribute_only(runtime, input, name->bytes);
}

Result<Value> filesizeformat_filter(Runtime& runtime, const Value& input,
                                    CallArguments& arguments) {
  const Bound bound = TRY(bind(runtime, arguments, {"filesizeformat", {"binary"}}));
  CallArguments none;
  const Value real = TRY(float_filter(runtime, input, none));
  const bool binary = truth_argument(bound, 0, false);
  const double base = binary ? 1024 : 1000;
  const double bytes = real.real();
  if (bytes == 1) return runtime.text(std::string("1 Byte"));
  if (bytes < base) return runtime.text(fmt::format("{:.0f} Bytes", std::trunc(bytes)));
  constexpr std::string_view kPrefixes = "KMGTPEZY";
  double unit = base * base;
  size_t i = 0;
  for (; i + 1 < kPrefixes.size() && bytes >= unit; ++i) unit *= base;
  const char prefix = i == 0 && !binary ? 'k' : kPrefixes[i];
  return runtime.text(fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, binary ? "iB" : "B"));
}

constexpr FilterEntry kValueFilters[] = {
    {"abs", abs_filter},         {"attr", attr_filter},   {"d", default_filter},
    {"default", default_filter}, {"float", float_filter}, {"filesizeformat", filesizeformat_filter},
    {"int", int_filter},         {"round", round_filter},
};

}  // namespace

std::span<const FilterEntry> value_filters() { return kValueFilters; }

}  // namespace strata::jinja
