#include "runtime/text/jinja/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/text/jinja/equality.h"
#include "runtime/text/jinja/unicode_text.h"
#include "runtime/text/jinja/value_text.h"

namespace strata::jinja {
namespace {

using Kind = Value::Kind;

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style, TextBuilder& out)
      : runtime_(runtime), style_(style), out_(out) {}

  Status write(const Value& value);

 private:
  void write_string(const Text& text);
  void write_escaped(char32_t c, bool foreign);
  Status write_items(const std::vector<Value>& items);
  Status write_dict(const Dict& dict);
  Status write_key(const Value& key);
  void write_scalar(const Value& value);
  void line_break() {
    if (!style_.indent) return;
    out_.append("\n", false);
    out_.append_repeated(*style_.indent, level_);
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder& out_;
  size_t level_ = 0;
};

void JsonWriter::write_escaped(char32_t c, bool foreign) {
  const auto code = static_cast<uint32_t>(c);
  const std::string text =
      code > 0xFFFF ? fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                                  0xDC00 + ((code - 0x10000) & 0x3FF))
                    : fmt::format("\\u{:04x}", code);
  out_.append(text, foreign);
}

void JsonWriter::write_string(const Text& text) {
  out_.append("\"", text.has_foreign());
  OriginCursor origin(text);
  for (size_t at = 0; at < text.bytes.size();) {
    const Character c = character_at(text.bytes, at);
    const bool foreign = origin.is_foreign(at);
    constexpr std::string_view kSpecial = "\"\\\n\r\t\f\b";
    constexpr std::string_view kLetters = "\"\\nrtfb";
    const size_t special = c.code_point < 0x80 ? kSpecial.find(static_cast<char>(c.code_point))
                                               : std::string_view::npos;
    if (special != std::string_view::npos) {
      const char pair[2] = {'\\', kLetters[special]};
      out_.append(std::string_view(pair, 2), foreign);
    } else if (c.code_point < 0x20 || (style_.ensure_ascii && c.code_point > 0x7E)) {
      write_escaped(c.code_point, foreign);
    } else {
      out_.append(std::string_view(text.bytes).substr(at, c.length), foreign);
    }
    at += c.length;
  }
  out_.append("\"", text.has_foreign());
}

void JsonWriter::write_scalar(const Value& value) {
  switch (value.kind()) {
    case Kind::none:
      out_.append("null", false);
      break;
    case Kind::boolean:
      out_.append(value.boolean() ? "true" : "false", false);
      break;
    case Kind::real: {
      const double real = value.real();
      out_.append(std::isnan(real)   ? "NaN"
                  : std::isinf(real) ? (real > 0 ? "Infinity" : "-Infinity")
                                     : real_repr(real),
                  false);
      break;
    }
    default:
      out_.append(value.big().to_string(), false);
  }
}

Status JsonWriter::write_items(const std::vector<Value>& items) {
  if (items.empty()) {
    out_.append("[]", false);
    return ok_status();
  }
  out_.append("[", false);
  ++level_;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out_.append(style_.item_separator, false);
    line_break();
    TRY(write(items[i]));
  }
  --level_;
  line_break();
  out_.append("]", false);
  return ok_status();
}

Status JsonWriter::write_key(const Value& key) {
  if (key.is_string()) {
    write_string(*key.text());
    return ok_status();
  }
  if (!key.is_number() && !key.is_none()) {
    return runtime_.error(
        fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
  }
  out_.append("\"", false);
  write_scalar(key);
  out_.append("\"", false);
  return ok_status();
}

Status JsonWriter::write_dict(const Dict& dict) {
  if (dict.entries.empty()) {
    out_.append("{}", false);
    return ok_status();
  }
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style_.sort_keys) {
    Status failure;
    std::stable_sort(entries.begin(), entries.end(), [&](const auto* a, const auto* b) {
      const auto order = compare(runtime_, a->first, b->first, "<");
      if (!order.ok() && failure.ok()) failure = order.status();
      return order.ok() && order.value() < 0;
    });
    TRY(std::move(failure));
  }
  out_.append("{", false);
  ++level_;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out_.append(style_.item_separator, false);
    line_break();
    TRY(write_key(entries[i]->first));
    out_.append(style_.key_separator, false);
    TRY(write(entries[i]->second));
  }
  --level_;
  line_break();
  out_.append("}", false);
  return ok_status();
}

Status JsonWriter::write(const Value& value) {
  const DepthGuard guard(runtime_);
  TRY(guard.status());
  TRY(runtime_.charge(value.is(Kind::big) ? 1000 : 1));
  switch (value.kind()) {
    case Kind::string:
      TRY(runtime_.charge_bytes(value.bytes().size()));
      write_string(*value.text());
      return ok_status();
    case Kind::list:
    case Kind::tuple:
      return write_items(value.elements());
    case Kind::dict:
      return write_dict(*value.dict());
    case Kind::undefined:
    case Kind::special:
      return runtime_.error(
          fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    default:
      write_scalar(value);
      return ok_status();
  }
}

}  // namespace

Status append_json(Runtime& runtime, const Value& value, const JsonStyle& style, TextBuilder& out) {
  return JsonWriter(runtime, style, out).write(value);
}

}  // namespace strata::jinja
