// Python's format specification mini-language: ">10", "+.2f", "#x", ",".
//
// Source: https://docs.python.org/3/library/string.html#formatspec
//
// Threads: free functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/text/jinja/runtime.h"

namespace strata::jinja {

struct FormatSpec {
  std::string fill = " ";  // one character
  char align = '\0';       // < > ^ =, none: by type
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';  // , or _
  size_t width = 0;
  std::optional<size_t> precision;
  char type = '\0';
};

// Errors: INVALID_ARGUMENT "Invalid format specifier ...", or a width or precision beyond limits.
Result<FormatSpec> parse_format_spec(Runtime& runtime, std::string_view text);

// Appends format(value, spec).
// Errors: as Python's ValueError for a type that does not fit the value.
Status append_formatted(Runtime& runtime, const Value& value, const FormatSpec& spec,
                        TextBuilder& out);

// The number without its sign, in the way of spec.type (e f g % and their like, or none).
std::string real_digits(double value, const FormatSpec& spec);
// The integer's digits without its sign in base 2, 8, 10 or 16, with the prefix if asked.
std::string integer_digits(const BigInteger& value, const FormatSpec& spec);

}  // namespace strata::jinja
