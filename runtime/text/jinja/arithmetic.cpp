#include "runtime/text/jinja/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/iteration.h"
#include "runtime/text/jinja/python_format.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

std::string_view symbol(Operation operation) {
  switch (operation) {
    case Operation::add:
      return "+";
    case Operation::subtract:
      return "-";
    case Operation::multiply:
      return "*";
    case Operation::divide:
      return "/";
    case Operation::floor_divide:
      return "//";
    case Operation::modulo:
      return "%";
    default:
      return "** or pow()";
  }
}

Status wrong_types(Runtime& runtime, Operation operation, const Value& left, const Value& right) {
  if (operation == Operation::add && left.is_string()) {
    return runtime.error(
        fmt::format("can only concatenate str (not \"{}\") to str", right.type_name()));
  }
  if (operation == Operation::add && left.is_sequence_object()) {
    return runtime.error(fmt::format("can only concatenate {} (not \"{}\") to {}", left.type_name(),
                                     right.type_name(), left.type_name()));
  }
  return runtime.error(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'",
                                   symbol(operation), left.type_name(), right.type_name()));
}

Result<Value> big_result(Runtime& runtime, BigInteger value) {
  TRY(runtime.charge(10));
  if (value.bits() > BigInteger::kBitsMax) {
    return runtime.error(
        fmt::format("an integer of more than {} bits is not supported", BigInteger::kBitsMax));
  }
  return Value::of(std::move(value));
}

Result<Value> integer_power(Runtime& runtime, const Value& base, const Value& exponent) {
  if (exponent.is(Kind::big)) return runtime.error("the exponent is too large");
  int64_t rest = exponent.small();
  if (rest < 0) {
    if (base.real() == 0) return runtime.error("0.0 cannot be raised to a negative power");
    return Value(std::pow(base.real(), static_cast<double>(rest)));
  }
  BigInteger result(1);
  BigInteger square = base.big();
  while (true) {
    if ((rest & 1) != 0) result = result * square;
    rest >>= 1;
    if (rest == 0 || result.bits() > BigInteger::kBitsMax) break;
    square = square * square;
    TRY(runtime.charge(1 + square.bits() / 64));
    if (square.bits() > BigInteger::kBitsMax) return big_result(runtime, std::move(square));
  }
  return big_result(runtime, std::move(result));
}

BigInteger power_of_two(size_t exponent) {
  BigInteger power(1);
  for (; exponent >= 1000; exponent -= 1000) {
    power = power * BigInteger::from_double(std::ldexp(1.0, 1000));
  }
  return power * BigInteger::from_double(std::ldexp(1.0, static_cast<int>(exponent)));
}

// The nearest float to a / b, however large both are.
Result<Value> true_division(Runtime& runtime, BigInteger a, BigInteger b) {
  TRY(runtime.charge(1 + (a.bits() + b.bits()) / 16));
  if (a.bits() <= 53 && b.bits() <= 53) return Value(a.to_double() / b.to_double());
  // A whole quotient of 66 or 67 bits, and one more bit for what stands behind them.
  const int64_t shift = 66 - static_cast<int64_t>(a.bits()) + static_cast<int64_t>(b.bits());
  if (shift > 0) a = a * power_of_two(static_cast<size_t>(shift));
  if (shift < 0) b = b * power_of_two(static_cast<size_t>(-shift));
  BigInteger quotient;
  BigInteger rest;
  const bool negative = a.is_negative() != b.is_negative();
  if (a.is_negative()) a = a.negated();
  if (b.is_negative()) b = b.negated();
  BigInteger::divide(a, b, quotient, rest);
  quotient = quotient * BigInteger(2) + BigInteger(rest.is_zero() ? 0 : 1);
  const double value = std::ldexp(quotient.to_double(), static_cast<int>(-shift - 1));
  if (!std::isfinite(value)) return runtime.error("integer division result too large for a float");
  return Value(negative ? -value : value);
}

Result<Value> integer_arithmetic(Runtime& runtime, Operation operation, const Value& left,
                                 const Value& right) {
  if (operation == Operation::power) return integer_power(runtime, left, right);
  const bool divides = operation == Operation::divide || operation == Operation::floor_divide ||
                       operation == Operation::modulo;
  if (divides && !is_truthy(right)) {
    return runtime.error(operation == Operation::divide ? "division by zero"
                                                        : "integer division or modulo by zero");
  }
  if (operation == Operation::divide) return true_division(runtime, left.big(), right.big());
  if (!left.is(Kind::big) && !right.is(Kind::big)) {
    const int64_t a = left.small();
    const int64_t b = right.small();
    int64_t result = 0;
    bool overflow = true;
    switch (operation) {
      case Operation::add:
        overflow = __builtin_add_overflow(a, b, &result);
        break;
      case Operation::subtract:
        overflow = __builtin_sub_overflow(a, b, &result);
        break;
      case Operation::multiply:
        overflow = __builtin_mul_overflow(a, b, &result);
        break;
      default:
        if (b == -1) break;  // the least integer has no positive twin
        overflow = false;
        if (operation == Operation::modulo) {
          result = a % b;
          if (result != 0 && (result < 0) != (b < 0)) result += b;
        } else {
          result = a / b;
          if (a % b != 0 && (a < 0) != (b < 0)) --result;
        }
    }
    if (!overflow) return Value(result);
  }
  const BigInteger a = left.big();
  const BigInteger b = right.big();
  switch (operation) {
    case Operation::add:
      return big_result(runtime, a + b);
    case Operation::subtract:
      return big_result(runtime, a - b);
    case Operation::multiply:
      TRY(runtime.charge(1 + a.bits() / 64 * (1 + b.bits() / 64)));
      return big_result(runtime, a * b);
    default: {
      TRY(runtime.charge(1 + a.bits() * (1 + b.bits() / 64) / 16));
      BigInteger quotient;
      BigInteger remainder;
      BigInteger::divide(a, b, quotient, remainder);
      return big_result(runtime, operation == Operation::modulo ? remainder : quotient);
    }
  }
}

Result<Value> real_arithmetic(Runtime& runtime, Operation operation, double a, double b) {
  switch (operation) {
    case Operation::add:
      return Value(a + b);
    case Operation::subtract:
      return Value(a - b);
    case Operation::multiply:
      return Value(a * b);
    case Operation::divide:
      if (b == 0) return runtime.error("float division by zero");
      return Value(a / b);
    case Operation::floor_divide: {
      if (b == 0) return runtime.error("float floor division by zero");
      const double rest = floor_modulo(a, b);
      const double quotient = (a - rest) / b;
      if (quotient == 0) return Value(std::copysign(0.0, a / b));
      const double floor = std::floor(quotient);
      return Value(quotient - floor > 0.5 ? floor + 1 : floor);
    }
    case Operation::modulo:
      if (b == 0) return runtime.error("float modulo");
      return Value(floor_modulo(a, b));
    default: {
      if (a == 0 && b < 0) return runtime.error("0.0 cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && b != std::floor(b)) {
        return runtime.error("the power is a complex number, which is not supported");
      }
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return runtime.error("the power is too large for a float");
      }
      return Value(power);
    }
  }
}

Result<Value> repeated(Runtime& runtime, const Value& sequence, const Value& count) {
  const int64_t times = count.is(Kind::big) ? INT64_MAX : std::max<int64_t>(count.small(), 0);
  if (sequence.is_string()) {
    TextBuilder out = runtime.builder();
    out.append_repeated(*sequence.text(), static_cast<size_t>(times));
    return runtime.text(std::move(out), sequence.text()->markup);
  }
  const std::vector<Value>& items = sequence.elements();
  const size_t most = runtime.limits().live_bytes_max / sizeof(Value);
  if (!items.empty() && static_cast<size_t>(times) > most / items.size()) {
    return runtime.exhausted("the memory limit for a repeated list");
  }
  std::vector<Value> result;
  for (int64_t i = 0; i < times && !items.empty(); ++i) {
    TRY(runtime.charge(items.size()));
    result.insert(result.end(), items.begin(), items.end());
  }
  if (sequence.is(Kind::list)) return Value(runtime.list(std::move(result)));
  return Value(runtime.tuple(std::move(result)));
}

Result<Value> joined(Runtime& runtime, const Value& left, const Value& right) {
  if (left.is_string()) {
    const bool markup = left.text()->markup || right.text()->markup;
    TextBuilder out = runtime.builder();
    for (const Value* part : {&left, &right}) {
      const Value text = markup ? TRY(escaped(runtime, *part)) : *part;
      out.append(*text.text());
    }
    return runtime.text(std::move(out), markup);
  }
  std::vector<Value> items = left.elements();
  const std::vector<Value>& more = right.elements();
  TRY(runtime.charge(items.size() + more.size()));
  items.insert(items.end(), more.begin(), more.end());
  if (left.is(Kind::list)) return Value(runtime.list(std::move(items)));
  return Value(runtime.tuple(std::move(items)));
}

bool is_repeatable(const Value& value) { return value.is_string() || value.is_sequence_object(); }

}  // namespace

double floor_modulo(double a, double b) {
  double rest = std::fmod(a, b);
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) rest += b;
  } else {
    rest = std::copysign(0.0, b);
  }
  return rest;
}

Result<Value> arithmetic(Runtime& runtime, Operation operation, const Value& left,
                         const Value& right) {
  if (left.is_undefined()) return runtime.error(left.undefined());
  if (operation == Operation::modulo && left.is_string()) {
    return format_percent(runtime, *left.text(), right);
  }
  if (right.is_undefined()) return runtime.error(right.undefined());
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) {
      return integer_arithmetic(runtime, operation, left, right);
    }
    return real_arithmetic(runtime, operation, left.real(), right.real());
  }
  if (operation == Operation::add && is_repeatable(left) && left.kind() == right.kind()) {
    return joined(runtime, left, right);
  }
  if (operation == Operation::multiply && is_repeatable(left) && right.is_integer()) {
    return repeated(runtime, left, right);
  }
  if (operation == Operation::multiply && is_repeatable(right) && left.is_integer()) {
    return repeated(runtime, right, left);
  }
  return wrong_types(runtime, operation, left, right);
}

Result<Value> negate(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return runtime.error(value.undefined());
  if (value.is_integer()) return Value::of(value.big().negated());
  if (value.is_number()) return Value(-value.real());
  return runtime.error(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
}

Result<Value> plus(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) return runtime.error(value.undefined());
  if (value.is(Kind::boolean)) return Value(value.small());
  if (value.is_number()) return value;
  return runtime.error(fmt::format("bad operand type for unary +: '{}'", value.type_name()));
}

Result<bool> holds(Runtime& runtime, Operation comparison, const Value& left, const Value& right) {
  switch (comparison) {
    case Operation::equal:
      return equal(runtime, left, right);
    case Operation::not_equal:
      return !TRY(equal(runtime, left, right));
    case Operation::in:
      return contains(runtime, right, left);
    case Operation::not_in:
      return !TRY(contains(runtime, right, left));
    case Operation::less:
      return TRY(compare(runtime, left, right, "<")) < 0;
    case Operation::less_equal:
      return TRY(compare(runtime, left, right, "<=")) <= 0;
    case Operation::greater:
      return TRY(compare(runtime, left, right, ">")) > 0;
    default:
      return TRY(compare(runtime, left, right, ">=")) >= 0;
  }
}

Result<bool> contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return runtime.error(
          fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    }
    const std::string& text = container.bytes();
    const std::string& wanted = item.bytes();
    TRY(runtime.charge_bytes(text.size()));
    // memmem and not string::find: linear in the worst case.
    return ::memmem(text.data(), text.size(), wanted.data(), wanted.size()) != nullptr;
  }
  if (container.is(Kind::dict)) {
    if (!hash_of(item)) {
      return runtime.error(fmt::format("unhashable type: '{}'", item.type_name()));
    }
    return container.dict()->find(item) != nullptr;
  }
  if (!is_iterable(container)) {
    return runtime.error(
        fmt::format("argument of type '{}' is not iterable", container.type_name()));
  }
  Iterator* iterator = TRY(iterate(runtime, container));
  Value candidate;
  while (TRY(iterator->next(runtime, candidate))) {
    if (TRY(equal(runtime, candidate, item))) return true;
  }
  return false;
}

double round_to(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits >= 0) {
    // The C library prints the exact value, rounded to even at ties.
    char text[700];
    std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(digits), value);
    return std::strtod(text, nullptr);
  }
  const double unit = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(value / unit) * unit;
}

Result<Value> escaped(Runtime& runtime, const Value& value) {
  const TextRef text = TRY(to_text(runtime, value));
  if (text->markup) return Value(text);
  TextBuilder out = runtime.builder();
  OriginCursor origin(*text);
  for (size_t i = 0; i < text->bytes.size(); ++i) {
    const bool foreign = origin.is_foreign(i);
    switch (text->bytes[i]) {
      case '&':
        out.append("&amp;", foreign);
        break;
      case '<':
        out.append("&lt;", foreign);
        break;
      case '>':
        out.append("&gt;", foreign);
        break;
      case '\'':
        out.append("&#39;", foreign);
        break;
      case '"':
        out.append("&#34;", foreign);
        break;
      default:
        out.append(std::string_view(text->bytes).substr(i, 1), foreign);
    }
  }
  return runtime.text(std::move(out), true);
}

}  // namespace strata::jinja
