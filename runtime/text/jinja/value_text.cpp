#include "runtime/text/jinja/value_text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "runtime/base/utf8.h"
#include "runtime/text/jinja/unicode_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

// A string as a Python literal: quotes chosen by what is in it, and what is not printable escaped.
void append_quoted(const Text& text, TextBuilder& out) {
  const bool has_single = text.bytes.find('\'') != std::string::npos;
  const bool has_double = text.bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string_view quotes(&quote, 1);
  OriginCursor origin(text);
  out.append(quotes, false);
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    const auto code = static_cast<uint32_t>(c.code_point);
    const bool foreign = origin.is_foreign(at);
    if (code == static_cast<uint8_t>(quote) || code == '\\') {
      out.append(fmt::format("\\{}", static_cast<char>(code)), foreign);
    } else if (code == '\n') {
      out.append("\\n", foreign);
    } else if (code == '\r') {
      out.append("\\r", foreign);
    } else if (code == '\t') {
      out.append("\\t", foreign);
    } else if (is_printable(c.code_point)) {
      out.append(std::string_view(text.bytes).substr(at, c.length), foreign);
    } else if (code <= 0xFF) {
      out.append(fmt::format("\\x{:02x}", code), foreign);
    } else if (code <= 0xFFFF) {
      out.append(fmt::format("\\u{:04x}", code), foreign);
    } else {
      out.append(fmt::format("\\U{:08x}", code), foreign);
    }
    at += c.length;
  }
  out.append(quotes, false);
}

Status append_items(Runtime& runtime, const std::vector<Value>& items, std::string_view opening,
                    std::string_view closing, TextBuilder& out) {
  out.append(opening, false);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    TRY(append_repr(runtime, items[i], out));
  }
  out.append(closing, false);
  return ok_status();
}

Status append_entries(Runtime& runtime, const Dict& dict, TextBuilder& out) {
  out.append("{", false);
  for (size_t i = 0; i < dict.entries.size(); ++i) {
    if (i > 0) out.append(", ", false);
    TRY(append_repr(runtime, dict.entries[i].first, out));
    out.append(": ", false);
    TRY(append_repr(runtime, dict.entries[i].second, out));
  }
  out.append("}", false);
  return ok_status();
}

Status append_view(Runtime& runtime, const DictView& view, TextBuilder& out) {
  out.append(view.type_name(), false);
  out.append("([", false);
  for (size_t i = 0; i < view.dict->entries.size(); ++i) {
    const auto& [key, value] = view.dict->entries[i];
    if (i > 0) out.append(", ", false);
    if (view.part == DictView::Part::items) out.append("(", false);
    if (view.part != DictView::Part::values) TRY(append_repr(runtime, key, out));
    if (view.part == DictView::Part::items) out.append(", ", false);
    if (view.part != DictView::Part::keys) TRY(append_repr(runtime, value, out));
    if (view.part == DictView::Part::items) out.append(")", false);
  }
  out.append("])", false);
  return ok_status();
}

Status append_special(Runtime& runtime, const Value& value, TextBuilder& out) {
  if (const auto* view = value.as<DictView>()) return append_view(runtime, *view, out);
  if (const auto* names = value.as<Namespace>()) {
    out.append("<Namespace ", false);
    TRY(append_entries(runtime, *names->attributes, out));
    out.append(">", false);
    return ok_status();
  }
  out.append(value.special()->repr(), false);
  return ok_status();
}

}  // namespace

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // "d.ddde-xx": the digits, then Python's choice of where the point stands.
  char scientific[40];
  const auto end = std::to_chars(scientific, scientific + sizeof(scientific), value,
                                 std::chars_format::scientific);
  std::string_view text(scientific, static_cast<size_t>(end.ptr - scientific));
  std::string sign;
  if (text.starts_with('-')) {
    sign = "-";
    text.remove_prefix(1);
  }
  const size_t e = text.find('e');
  int exponent = 0;
  const std::string_view power = text.substr(text[e + 1] == '+' ? e + 2 : e + 1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  if (exponent < -4 || exponent >= 16) {
    if (digits.size() > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0)
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

Status append_repr(Runtime& runtime, const Value& value, TextBuilder& out) {
  const DepthGuard guard(runtime);
  TRY(guard.status());
  TRY(runtime.charge());
  switch (value.kind()) {
    case Kind::undefined:
      out.append("Undefined", false);
      return ok_status();
    case Kind::none:
      out.append("None", false);
      return ok_status();
    case Kind::boolean:
      out.append(value.boolean() ? "True" : "False", false);
      return ok_status();
    case Kind::integer:
      out.append(std::to_string(value.small()), false);
      return ok_status();
    case Kind::big:
      TRY(runtime.charge(1000));
      out.append(value.big().to_string(), false);
      return ok_status();
    case Kind::real:
      out.append(real_repr(value.real()), false);
      return ok_status();
    case Kind::string:
      TRY(runtime.charge_bytes(value.bytes().size()));
      if (value.text()->markup) out.append("Markup(", false);
      append_quoted(*value.text(), out);
      if (value.text()->markup) out.append(")", false);
      return ok_status();
    case Kind::list:
      return append_items(runtime, value.list()->items, "[", "]", out);
    case Kind::tuple: {
      const std::vector<Value>& items = value.tuple()->items;
      return append_items(runtime, items, "(", items.size() == 1 ? ",)" : ")", out);
    }
    case Kind::dict:
      return append_entries(runtime, *value.dict(), out);
    case Kind::special:
      return append_special(runtime, value, out);
  }
  return ok_status();
}

Status append_text(Runtime& runtime, const Value& value, TextBuilder& out) {
  if (value.is_string()) {
    TRY(runtime.charge_bytes(value.bytes().size()));
    out.append(*value.text());
    return ok_status();
  }
  if (value.is_undefined()) return ok_status();
  return append_repr(runtime, value, out);
}

Result<TextRef> to_text(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  TextBuilder out = runtime.builder();
  TRY(append_text(runtime, value, out));
  const Value text = TRY(runtime.text(std::move(out)));
  return text.text();
}

std::string short_repr(Runtime& runtime, const Value& value) {
  TextBuilder out = runtime.builder();
  if (!append_repr(runtime, value, out).ok()) return "...";
  return printable(out.take().bytes, 60);
}

}  // namespace strata::jinja
