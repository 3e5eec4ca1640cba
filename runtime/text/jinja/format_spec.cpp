#include "runtime/text/jinja/format_spec.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/unicode_text.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

// Digits after the point: a double has no more than 1,074.
constexpr size_t kPrecisionMax = 1100;

bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

// A decimal number at the front, taken off; none if there is no digit.
std::optional<size_t> take_number(std::string_view& text) {
  size_t value = 0;
  size_t count = 0;
  for (; count < text.size() && text[count] >= '0' && text[count] <= '9'; ++count) {
    value = std::min<size_t>(value * 10 + static_cast<size_t>(text[count] - '0'), 1'000'000'000);
  }
  text.remove_prefix(count);
  return count == 0 ? std::nullopt : std::optional<size_t>(value);
}

// Separators between groups of digits, from the right; up to the point, if there is one.
std::string grouped(const std::string& digits, char separator, size_t group) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % group == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

std::string print_real(const char* format, size_t precision, double value) {
  char text[1600];
  const int length = std::snprintf(text, sizeof(text), format, static_cast<int>(precision), value);
  return {text, static_cast<size_t>(std::max(length, 0))};
}

void append_padded(const Text* text, std::string_view plain, std::string_view sign, char align,
                   const FormatSpec& spec, TextBuilder& out) {
  const size_t length = count_code_points(text != nullptr ? text->bytes : plain) + sign.size();
  const size_t padding = spec.width > length ? spec.width - length : 0;
  const size_t left = align == '>' || align == '=' ? padding : align == '^' ? padding / 2 : 0;
  if (align == '=') out.append(sign, false);
  out.append_repeated(spec.fill, left);
  if (align != '=') out.append(sign, false);
  if (text != nullptr) {
    out.append(*text);
  } else {
    out.append(plain, false);
  }
  out.append_repeated(spec.fill, padding - left);
}

Status append_number(Runtime& runtime, const Value& value, const FormatSpec& spec,
                     TextBuilder& out) {
  constexpr std::string_view kRealTypes = "eEfFgG%";
  const bool as_real = value.is(Value::Kind::real) ||
                       (spec.type != '\0' && kRealTypes.find(spec.type) != std::string_view::npos);
  if (!as_real && spec.type != '\0' &&
      std::string_view("bcdoxXn").find(spec.type) == std::string_view::npos) {
    return runtime.error(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                                     value.type_name()));
  }
  if (as_real && value.is(Value::Kind::real) && spec.type != '\0' && spec.type != 'n' &&
      kRealTypes.find(spec.type) == std::string_view::npos) {
    return runtime.error(
        fmt::format("Unknown format code '{}' for object of type 'float'", spec.type));
  }
  std::string digits;
  bool negative = false;
  if (as_real) {
    const double real = value.real();
    negative = std::signbit(real) && !std::isnan(real);
    digits = real_digits(std::fabs(real), spec);
  } else if (spec.precision) {
    return runtime.error("Precision not allowed in integer format specifier");
  } else {
    const BigInteger integer = value.big();
    negative = integer.is_negative();
    if (spec.type == 'c') {
      append_code_point(static_cast<char32_t>(integer.as_int64().value_or(0)), digits);
    } else {
      digits = integer_digits(negative ? integer.negated() : integer, spec);
    }
  }
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  append_padded(nullptr, digits, sign, spec.align == '\0' ? '>' : spec.align, spec, out);
  return ok_status();
}

}  // namespace

Result<FormatSpec> parse_format_spec(Runtime& runtime, std::string_view text) {
  const std::string_view whole = text;
  FormatSpec spec;
  if (!text.empty()) {
    const size_t first = character_at(text, 0).length;
    if (text.size() > first && is_align(text[first])) {
      spec.fill = std::string(text.substr(0, first));
      spec.align = text[first];
      text.remove_prefix(first + 1);
    } else if (is_align(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  const auto take = [&text](std::string_view letters) {
    if (text.empty() || letters.find(text[0]) == std::string_view::npos) return '\0';
    const char letter = text[0];
    text.remove_prefix(1);
    return letter;
  };
  if (const char sign = take("+- ")) spec.sign = sign;
  spec.alternate = take("#") != '\0';
  if (text.starts_with('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = take_number(text).value_or(0);
  spec.grouping = take(",_");
  if (take(".") != '\0') {
    spec.precision = take_number(text);
    if (!spec.precision) return runtime.error("Format specifier missing precision");
  }
  if (text.size() == 1) spec.type = take("bcdeEfFgGnosxX%");
  if (!text.empty()) {
    return runtime.error(fmt::format("Invalid format specifier '{}'", printable(whole, 40)));
  }
  return spec;
}

std::string real_digits(double value, const FormatSpec& spec) {
  const char type = spec.type == 'n' ? 'g' : spec.type;
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(value)) {
    std::string text = std::isnan(value) ? "nan" : "inf";
    if (upper) text = std::isnan(value) ? "NAN" : "INF";
    return type == '%' ? text + "%" : text;
  }
  if (type == '\0' && !spec.precision) return real_repr(value);
  const size_t precision = std::min(spec.precision.value_or(6), kPrecisionMax);
  std::string text;
  switch (type) {
    case 'f':
    case 'F':
      text = print_real(spec.alternate ? "%#.*f" : "%.*f", precision, value);
      break;
    case '%':
      text = print_real("%.*f", precision, value * 100) + "%";
      break;
    case 'e':
      text = print_real(spec.alternate ? "%#.*e" : "%.*e", precision, value);
      break;
    case 'E':
      text = print_real(spec.alternate ? "%#.*E" : "%.*E", precision, value);
      break;
    case 'G':
      text = print_real(spec.alternate ? "%#.*G" : "%.*G", precision, value);
      break;
    default:
      text = print_real(spec.alternate ? "%#.*g" : "%.*g", precision, value);
      if (type == '\0' && text.find_first_of(".e") == std::string::npos) text += ".0";
  }
  return spec.grouping == '\0' ? text : grouped(text, spec.grouping, 3);
}

std::string integer_digits(const BigInteger& value, const FormatSpec& spec) {
  const uint32_t base = spec.type == 'b'                       ? 2
                        : spec.type == 'o'                     ? 8
                        : spec.type == 'x' || spec.type == 'X' ? 16
                                                               : 10;
  std::string digits = value.to_string(base, spec.type == 'X');
  if (spec.grouping != '\0') digits = grouped(digits, spec.grouping, base == 10 ? 3 : 4);
  if (spec.alternate && base != 10) digits = std::string("0") + spec.type + digits;
  return digits;
}

Status append_formatted(Runtime& runtime, const Value& value, const FormatSpec& spec,
                        TextBuilder& out) {
  const bool plain = spec.type == '\0' || spec.type == 's';
  if (value.is_number() && !(value.is(Value::Kind::boolean) && plain)) {
    return append_number(runtime, value, spec, out);
  }
  if (value.is_undefined()) return runtime.error(value.undefined());
  if (!plain) {
    return runtime.error(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type,
                                     value.type_name()));
  }
  TextRef text = TRY(to_text(runtime, value));
  if (spec.precision && *spec.precision < text->length) {
    const Value part = TRY(runtime.slice(*text, 0, offset_of(*text, *spec.precision)));
    text = part.text();
  }
  append_padded(text.get(), {}, {}, spec.align == '\0' ? '<' : spec.align, spec, out);
  return ok_status();
}

}  // namespace strata::jinja
