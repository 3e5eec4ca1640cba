#include "runtime/text/jinja/python_format.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/access.h"
#include "runtime/text/jinja/format_spec.h"
#include "runtime/text/jinja/unicode_text.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& text, const Value& values)
      : runtime_(runtime), text_(text), values_(values), out_(runtime.builder()) {}

  Result<Value> run();

 private:
  // One conversion; `at_` is behind the percent sign.
  Status convert();
  Result<Value> next_value(const std::string* key);
  Status append(char type, const Value& value, FormatSpec spec, bool left);
  Result<size_t> number(std::string_view what);
  char peek() const { return at_ < text_.bytes.size() ? text_.bytes[at_] : '\0'; }

  Runtime& runtime_;
  const Text& text_;
  const Value& values_;
  TextBuilder out_;
  size_t at_ = 0;
  size_t used_ = 0;
};

Result<Value> PercentFormatter::run() {
  while (at_ < text_.bytes.size()) {
    TRY(runtime_.charge());
    const size_t percent = std::min(text_.bytes.find('%', at_), text_.bytes.size());
    out_.append(text_, at_, percent);
    at_ = percent + 1;
    if (percent < text_.bytes.size()) TRY(convert());
  }
  const bool lenient = values_.is(Kind::dict) || values_.is(Kind::list);
  const size_t given = values_.is(Kind::tuple) ? values_.tuple()->items.size() : 1;
  if (!lenient && used_ < given) {
    return runtime_.error("not all arguments converted during string formatting");
  }
  return runtime_.text(std::move(out_), text_.markup);
}

Result<Value> PercentFormatter::next_value(const std::string* key) {
  if (key != nullptr) {
    if (!values_.is(Kind::dict)) return runtime_.error("format requires a mapping");
    const Value* value = values_.dict()->find(*key);
    if (value == nullptr) return runtime_.error(fmt::format("no key '{}'", printable(*key)));
    return *value;
  }
  const size_t index = used_++;
  if (values_.is(Kind::tuple)) {
    if (index < values_.tuple()->items.size()) return values_.tuple()->items[index];
  } else if (index == 0) {
    return values_;
  }
  return runtime_.error("not enough arguments for format string");
}

// A width or precision: digits, or "*" for the next value.
Result<size_t> PercentFormatter::number(std::string_view what) {
  if (peek() == '*') {
    ++at_;
    const Value value = TRY(next_value(nullptr));
    if (!value.is(Kind::integer)) return runtime_.error("* wants int");
    return static_cast<size_t>(std::max<int64_t>(value.small(), 0));
  }
  size_t value = 0;
  for (; peek() >= '0' && peek() <= '9'; ++at_) {
    value = value * 10 + static_cast<size_t>(peek() - '0');
    if (value > 1'000'000'000) return runtime_.error(fmt::format("{} too big", what));
  }
  return value;
}

Status PercentFormatter::convert() {
  if (peek() == '%') {
    ++at_;
    out_.append("%", false);
    return ok_status();
  }
  std::optional<std::string> key;
  if (peek() == '(') {
    const size_t end = text_.bytes.find(')', at_);
    if (end == std::string::npos) return runtime_.error("incomplete format key");
    key = text_.bytes.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
  }
  FormatSpec spec;
  bool left = false;
  bool zero = false;
  for (; peek() != '\0' && std::string_view("-+ #0").find(peek()) != std::string_view::npos;
       ++at_) {
    left |= peek() == '-';
    zero |= peek() == '0';
    spec.alternate |= peek() == '#';
    if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
  }
  spec.width = TRY(number("width"));
  if (peek() == '.') {
    ++at_;
    spec.precision = TRY(number("precision"));
  }
  while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++at_;
  const char type = peek();
  if (type == '\0') return runtime_.error("incomplete format");
  ++at_;
  if (type == '%') {
    out_.append("%", false);
    return ok_status();
  }
  const Value value = TRY(next_value(key ? &*key : nullptr));
  if (zero && !left) {
    spec.fill = "0";
    spec.align = '=';
  }
  return append(type, value, spec, left);
}

Status PercentFormatter::append(char type, const Value& value, FormatSpec spec, bool left) {
  spec.type = type;
  const auto number_wanted = [&] {
    return runtime_.error(
        fmt::format("%{} format: a real number is required, not {}", type, value.type_name()));
  };
  const auto align = [&](char otherwise) {
    if (left) spec.align = '<';
    if (!left && spec.align == '\0') spec.align = otherwise;
  };
  switch (type) {
    case 's':
    case 'r':
    case 'a': {
      TextBuilder text = runtime_.builder();
      TRY(type == 's' ? append_text(runtime_, value, text) : append_repr(runtime_, value, text));
      spec.type = 's';
      spec.align = left ? '<' : '>';
      spec.fill = " ";
      return append_formatted(runtime_, TRY(runtime_.text(std::move(text))), spec, out_);
    }
    case 'c':
      spec.type = value.is_string() ? 's' : 'c';
      spec.fill = " ";
      spec.align = left ? '<' : '>';
      if (value.is_string() && value.text()->length != 1) {
        return runtime_.error("%c requires int or char");
      }
      return append_formatted(runtime_, value, spec, out_);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': {
      if (!value.is_number() ||
          (type != 'd' && type != 'i' && type != 'u' && !value.is_integer())) {
        return number_wanted();
      }
      if (value.is(Kind::real) && !std::isfinite(value.real())) {
        return runtime_.error("cannot convert a float that is not finite to integer");
      }
      const Value integer = value.is(Kind::real) ? Value::of(BigInteger::from_double(value.real()))
                                                 : Value::of(value.big());
      if (type == 'i' || type == 'u') spec.type = 'd';
      spec.precision.reset();
      align('>');
      return append_formatted(runtime_, integer, spec, out_);
    }
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      if (!value.is_number()) return number_wanted();
      align('>');
      return append_formatted(runtime_, value.real(), spec, out_);
    default:
      return runtime_.error(fmt::format("unsupported format character '{}'", type));
  }
}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallArguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  Status format(const Text& text, size_t begin, size_t end, TextBuilder& out, int depth);

 private:
  // One replacement field: text[begin, end) is what stands between the braces.
  Status replace(const Text& text, size_t begin, size_t end, TextBuilder& out, int depth);
  Result<Value> field(std::string_view name);
  Result<Value> first_value(std::string_view name);

  Runtime& runtime_;
  const CallArguments& arguments_;
  int64_t next_ = 0;  // -1: numbered by hand
};

Status BraceFormatter::format(const Text& text, size_t begin, size_t end, TextBuilder& out,
                              int depth) {
  const std::string& bytes = text.bytes;
  size_t at = begin;
  while (at < end) {
    TRY(runtime_.charge());
    const size_t brace = std::min(bytes.find_first_of("{}", at), end);
    out.append(text, at, brace);
    at = brace;
    if (at >= end) break;
    if (at + 1 < end && bytes[at + 1] == bytes[at]) {
      out.append(text, at, at + 1);
      at += 2;
      continue;
    }
    if (bytes[at] == '}') return runtime_.error("Single '}' encountered in format string");
    int level = 1;
    size_t close = at + 1;
    for (; close < end; ++close) {
      if (bytes[close] == '{') ++level;
      if (bytes[close] == '}' && --level == 0) break;
    }
    if (close >= end) return runtime_.error("expected '}' before end of string");
    TRY(replace(text, at + 1, close, out, depth));
    at = close + 1;
  }
  return ok_status();
}

Result<Value> BraceFormatter::first_value(std::string_view name) {
  int64_t index = -1;
  const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool numeric = !name.empty() && parsed.ec == std::errc() && index >= 0 &&
                       parsed.ptr == name.data() + name.size();
  if (name.empty()) {
    if (next_ < 0) {
      return runtime_.error(
          "cannot switch from manual field specification to automatic field numbering");
    }
    index = next_++;
  } else if (numeric) {
    if (next_ > 0) {
      return runtime_.error(
          "cannot switch from automatic field numbering to manual field specification");
    }
    next_ = -1;
  } else {
    for (const auto& [key, value] : arguments_.named) {
      if (key == name) return value;
    }
    return runtime_.error(fmt::format("format() has no value for '{}'", printable(name)));
  }
  if (static_cast<size_t>(index) < arguments_.positional.size()) {
    return arguments_.positional[static_cast<size_t>(index)];
  }
  return runtime_.error(
      fmt::format("Replacement index {} out of range for positional args tuple", index));
}

Result<Value> BraceFormatter::field(std::string_view name) {
  const size_t head = std::min(name.find_first_of(".["), name.size());
  Value value = TRY(first_value(name.substr(0, head)));
  name.remove_prefix(head);
  while (!name.empty()) {
    TRY(runtime_.charge());
    if (name[0] == '.') {
      const size_t end = std::min(name.find_first_of(".[", 1), name.size());
      value = TRY(get_attribute(runtime_, value, name.substr(1, end - 1)));
      name.remove_prefix(end);
      continue;
    }
    const size_t end = name.find(']');
    if (name[0] != '[' || end == std::string_view::npos) {
      return runtime_.error("Missing ']' in format string");
    }
    const std::string_view key = name.substr(1, end - 1);
    int64_t index = 0;
    const auto parsed = std::from_chars(key.data(), key.data() + key.size(), index);
    const bool numeric = parsed.ec == std::errc() && parsed.ptr == key.data() + key.size();
    const Value key_value = numeric ? Value(index) : TRY(runtime_.text(std::string(key)));
    value = TRY(get_item(runtime_, value, key_value));
    if (value.is_undefined()) return runtime_.error(value.undefined());
    name.remove_prefix(end + 1);
  }
  return value;
}

Status BraceFormatter::replace(const Text& text, size_t begin, size_t end, TextBuilder& out,
                               int depth) {
  if (depth > 1) return runtime_.error("Max string recursion exceeded");
  const std::string_view content = std::string_view(text.bytes).substr(begin, end - begin);
  const size_t name_end = std::min(content.find_first_of("!:"), content.size());
  Value value = TRY(field(content.substr(0, name_end)));
  size_t at = name_end;
  if (at < content.size() && content[at] == '!') {
    const char conversion = at + 1 < content.size() ? content[at + 1] : '\0';
    if (conversion != 's' && conversion != 'r' && conversion != 'a') {
      return runtime_.error("expected 's', 'r' or 'a' after '!' in a format string");
    }
    TextBuilder converted = runtime_.builder();
    TRY(conversion == 's' ? append_text(runtime_, value, converted)
                          : append_repr(runtime_, value, converted));
    value = TRY(runtime_.text(std::move(converted)));
    at += 2;
    if (at < content.size() && content[at] != ':') {
      return runtime_.error("expected ':' after conversion specifier");
    }
  }
  if (at >= content.size()) {
    if (value.is_number()) return append_formatted(runtime_, value, FormatSpec(), out);
    return append_text(runtime_, value, out);
  }
  TextBuilder spec_text = runtime_.builder();
  TRY(format(text, begin + at + 1, end, spec_text, depth + 1));
  const FormatSpec spec = TRY(parse_format_spec(runtime_, spec_text.take().bytes));
  return append_formatted(runtime_, value, spec, out);
}

}  // namespace

Result<Value> format_percent(Runtime& runtime, const Text& text, const Value& values) {
  return PercentFormatter(runtime, text, values).run();
}

Result<Value> format_braces(Runtime& runtime, const Text& text, const CallArguments& arguments) {
  TextBuilder out = runtime.builder();
  BraceFormatter formatter(runtime, arguments);
  TRY(formatter.format(text, 0, text.bytes.size(), out, 0));
  return runtime.text(std::move(out), text.markup);
}

}  // namespace strata::jinja
